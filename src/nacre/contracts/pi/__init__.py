"""The `pi` contract: a persistent shell and background jobs."""
