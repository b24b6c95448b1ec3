"""The `nacre` contract, a dialect of the tool in which every command is a run with an id."""
