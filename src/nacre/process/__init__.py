"""Touching the operating system: starting a command, reading it, signalling all of it.

Knows nothing of contracts, clocks or states; `engine` decides when, this room does.
"""
