"""Remembering: what stays on disk after a call."""
