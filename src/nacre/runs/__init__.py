"""Operations on a run, in the process that owns it."""
