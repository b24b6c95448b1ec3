"""The nacre contract: every command is a run with an id."""
