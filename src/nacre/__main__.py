"""`python -m nacre`."""

import sys

if sys.argv[1:2] == ["warden"]:  # it is small, and stays so: nothing of the rest is loaded
    from nacre.warden.start import entry
else:
    from nacre.fronts.cli import entry

entry()
