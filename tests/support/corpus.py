"""Shell text for tests: commands as agents write them, and the shell scripts of this machine."""

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

_NEAR = ("/var/lib/dpkg/info", "/usr/bin", "/usr/sbin", "/etc")
_FAR = ("/usr/lib", "/usr/share")  # walking these directories takes half a minute
_FEW = 300
_SHEBANG = re.compile(rb"#! ?/(?:usr/)?bin/(?:env )?(?:ba|da)?sh\b")
_PYTHON = re.compile(rb"#!.*\n(?:#.*\n)*'''exec'")  # Python script whose first lines are for sh
_LONGEST = 60_000


def commands() -> list[bytes]:
    """Return commands that were written for these tests, similar to everyday commands of agents."""
    text = (Path(__file__).parents[1] / "data" / "commands.txt").read_bytes()
    return [each.strip(b"\n") for each in text.split(b"\n%%\n")]


def scripts(most: int) -> list[tuple[str, bytes]]:
    """Return at most `most` shell scripts of this machine; the selection is deterministic."""
    places = _NEAR if most <= _FEW else (*_NEAR, *_FAR)
    found = sorted(_scripts(places), key=lambda each: sha256(each[1]).digest())
    return found[:most]


def _scripts(places: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    seen = set()
    for place in places:
        for directory, _, names in os.walk(place):
            for name in names:
                path = Path(directory) / name
                text = _script(path)
                if text is not None and text not in seen:
                    seen.add(text)
                    yield str(path), text


def _script(path: Path) -> bytes | None:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST:
            return None
        with path.open("rb") as file:
            if not _SHEBANG.match(file.read(64)):
                return None
        text = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in text or _PYTHON.match(text) else text
