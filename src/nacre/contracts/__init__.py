"""Dialects of the tool: schema, steps before a run, reply text."""
