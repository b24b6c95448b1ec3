"""Persistent shell sessions: manager, lease, pool of prewarmed shells, user set-up."""
