"""Search for the workspace that a directory belongs to."""

import os


def find_workspace(cwd: bytes) -> bytes:
    """Return the git top level of a directory, else the directory itself."""
    at = cwd
    while True:
        if os.path.lexists(at + b"/.git"):
            return at
        above = os.path.dirname(at)
        if above == at:
            return cwd
        at = above
