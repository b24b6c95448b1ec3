"""Handling of paths as in a shell: paths are bytes, and symbolic links are not resolved."""

import os


def resolve_path(directory: bytes, path: bytes) -> bytes:
    """Return the absolute, normalized form of `path`, which is relative to the absolute directory
    `directory` unless it begins with a slash."""
    path = os.path.normpath(path if path.startswith(b"/") else directory + b"/" + path)
    return b"/" + path.lstrip(b"/")
