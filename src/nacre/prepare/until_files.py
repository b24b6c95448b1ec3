"""Files that `until` waits for, resolved from the directory that the command runs in."""

import msgspec

from nacre.bash.paths import resolve_path
from nacre.model.requests import Condition


def resolve_files(
    until: tuple[Condition, ...], cwd: bytes, home: bytes | None = None
) -> tuple[Condition, ...]:
    """`home` replaces a leading `~`; None leaves it as it is."""
    return tuple(
        each
        if each.file is None
        else msgspec.structs.replace(each, file=resolve_path(cwd, _expand_home(each.file, home)))
        for each in until
    )


def _expand_home(path: bytes, home: bytes | None) -> bytes:
    return path if home is None or not path.startswith(b"~/") else home + path[1:]
