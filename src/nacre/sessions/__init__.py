"""Persistent shell sessions: session manager, leases on sessions, prewarmed shells, and reading of
the user's shell startup files."""
