"""The pi contract."""
