"""Store: everything that nacre keeps on disk after a call."""
