"""Entry point of `python -m nacre`: starts the warden or the command line."""

import sys

if sys.argv[1:2] == ["warden"]:  # the warden stays small: it loads no front end
    from nacre.warden.main import entry
else:
    from nacre.frontends.cli.main import entry

entry()
