"""Resolving the paths of files that an `until` condition waits for, relative to the command's
working directory."""

from nacre.bash.paths import resolve_path
from nacre.model.requests import Condition, FileExists


def resolve_files(
    until: tuple[Condition, ...], cwd: bytes, home: bytes | None = None
) -> tuple[Condition, ...]:
    """Return the conditions `until`, and make the path of each awaited file absolute. The directory
    `home` replaces a leading `~`; if `home` is None, the `~` is kept."""
    return tuple(
        FileExists(resolve_path(cwd, _expand_home(each.path, home)))
        if isinstance(each, FileExists)
        else each
        for each in until
    )


def _expand_home(path: bytes, home: bytes | None) -> bytes:
    return path if home is None or not path.startswith(b"~/") else home + path[1:]
