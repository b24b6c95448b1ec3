"""Operating system access: starting a command, reading its output, signalling its process tree.

This package knows nothing of contracts, timers or run states. The `engine` package decides when
to act.
"""
