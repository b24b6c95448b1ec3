"""Persistent shells: manager, lease, pool of prewarmed shells, user set-up."""
