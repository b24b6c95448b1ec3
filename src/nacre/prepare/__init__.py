"""Deciding what shall happen to a plan before anything runs. May look, never touches."""
