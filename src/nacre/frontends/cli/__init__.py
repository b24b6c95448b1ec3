"""The command line of nacre, with one module for each command."""
