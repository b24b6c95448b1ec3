"""Contracts: dialects of the tool, each with its own schema, steps and reply text."""
