"""Operations on a run from any process, written as sequences of waits."""
