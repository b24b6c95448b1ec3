"""What a shell remembers, as text: how it is written down, read, and told to the next shell.

The scripts beside this file run inside bash; the modules know their words. Pure: nothing here
starts, opens or waits for anything.
"""
