"""Paths as a shell treats them: paths are bytes, and symbolic links are not resolved."""

import os


def resolve_path(directory: bytes, path: bytes) -> bytes:
    """Return the absolute, normalized form of a path that is relative to an absolute directory."""
    path = os.path.normpath(path if path.startswith(b"/") else directory + b"/" + path)
    return b"/" + path.lstrip(b"/")
