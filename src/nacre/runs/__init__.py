"""Operations on a run, whichever process owns it."""
