"""What a session's shell saves and restores, as bash text."""
