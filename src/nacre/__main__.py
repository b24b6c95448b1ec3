"""Entry point of `python -m nacre`: starts the warden (nacre's daemon) or the command-line
interface."""

import sys

# The warden (nacre's daemon) loads none of the front ends (command line, RPC, MCP), so that its
# process stays small.
if sys.argv[1:2] == ["warden"]:
    from nacre.warden.main import entry
else:
    from nacre.frontends.cli.main import entry

entry()
