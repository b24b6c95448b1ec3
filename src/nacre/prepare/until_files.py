"""Resolving the paths of files that an `until` condition waits for, relative to the command's
working directory."""

from msgspec.structs import replace

from nacre.bash.paths import resolve_path
from nacre.model.wait_conditions import Conditions, FileExists


def resolve_files(until: Conditions, cwd: bytes, home: bytes | None = None) -> Conditions:
    """Return the conditions `until`, and make the path of each awaited file absolute. The directory
    `home` replaces a leading `~`; if `home` is None, the `~` is kept."""
    if not any(isinstance(each, FileExists) for each in until.listed):
        return until
    listed = tuple(
        FileExists(resolve_path(cwd, _expand_home(each.path, home)))
        if isinstance(each, FileExists)
        else each
        for each in until.listed
    )
    return replace(until, listed=listed)


def _expand_home(path: bytes, home: bytes | None) -> bytes:
    return path if home is None or not path.startswith(b"~/") else home + path[1:]
