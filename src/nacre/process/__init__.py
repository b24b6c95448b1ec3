"""Operating system access: starting a command, reading its output, signalling its process tree.

The package `process` knows nothing of contracts, timers or run states. The package `engine` decides
when to start, read and signal a command.
"""
