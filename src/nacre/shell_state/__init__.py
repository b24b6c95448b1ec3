"""Saving and restoring the state of a session's shell, in the form of bash code."""
