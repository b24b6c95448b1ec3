"""The contracts, row by row."""
