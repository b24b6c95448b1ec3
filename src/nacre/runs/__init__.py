"""Operations that any process can perform on a run, written as coroutines; see `runs/sequence`."""
