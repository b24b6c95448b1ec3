"""The contract nacre: every command is a run with an id."""
