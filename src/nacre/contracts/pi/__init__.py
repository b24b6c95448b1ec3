"""The contract pi: a persistent shell and background jobs."""
