"""Saving and restoring the state of a session's shell, as bash text."""
