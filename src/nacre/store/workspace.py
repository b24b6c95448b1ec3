"""Search for the workspace (usually the git top level) that a directory belongs to."""

import os


def find_workspace(cwd: bytes) -> bytes:
    """Return the git top level that contains a directory, or the directory itself if it is in no
    git repository."""
    at = cwd
    while True:
        if os.path.lexists(at + b"/.git"):
            return at
        above = os.path.dirname(at)
        if above == at:
            return cwd
        at = above
