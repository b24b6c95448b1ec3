"""Shells that remember, and shells that are already there."""
