"""Looking back at a run: what its output says, and what of it is worth reading."""
