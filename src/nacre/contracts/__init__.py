"""Contracts: dialects of the shell tool, each with its own argument schema, checks before a run,
and reply text."""
