"""Handling of paths as in a shell: paths are bytes, and symbolic links are not resolved."""

import os


def resolve_path(directory: bytes, path: bytes) -> bytes:
    """Return the absolute, normalized form of `path`, which is relative to the absolute directory
    `directory` unless it begins with a slash."""
    path = os.path.normpath(path if path.startswith(b"/") else directory + b"/" + path)
    return b"/" + path.lstrip(b"/")


def is_enterable(path: bytes) -> bool:
    """Return whether the path is a directory in which a command can run."""
    return os.access(path + b"/.", os.X_OK)


def nearest_directory(path: bytes) -> bytes | None:
    """Return the closest parent directory of `path` in which a command can run; None if there is
    none."""
    while path not in (b"", b"/"):
        path = os.path.dirname(path.rstrip(b"/"))
        if path and is_enterable(path):
            return path
    return None
