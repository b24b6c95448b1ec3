"""Paths as a shell sees them: bytes, and symbolic links stay what they are."""

import os


def resolve_path(directory: bytes, path: bytes) -> bytes:
    """Where a path leads from an absolute directory."""
    path = os.path.normpath(path if path.startswith(b"/") else directory + b"/" + path)
    return b"/" + path.lstrip(b"/")
