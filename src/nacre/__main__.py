"""`python -m nacre`."""

import sys

if sys.argv[1:2] == ["warden"]:  # it is small, and stays so: nothing of the rest is loaded
    from nacre.warden.main import entry
else:
    from nacre.frontends.cli.main import entry

entry()
