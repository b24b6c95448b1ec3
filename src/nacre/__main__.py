"""`python -m nacre`."""

from nacre.fronts.cli import entry

entry()
