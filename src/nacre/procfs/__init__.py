"""Read-only access to /proc: processes, listening ports, and threads that block in a read."""
