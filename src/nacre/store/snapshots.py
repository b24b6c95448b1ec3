"""What a user's own set-up makes of a shell, read once and kept for as long as it stays as it is.

    snapshots/<digest of what was read, and for whom>

One private file each. Whoever finds none makes it (`engine.snapshot`); one that could not be made
is kept as well, empty, and tried again after a while.
"""

import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from nacre.digest import digest
from nacre.shell.state import State
from nacre.store.home import private_directory, replace, safe_home

_RETRY: Final = 600.0  # seconds after which a failure is forgotten
_OF_ALL: Final = (b"/etc/profile", b"/etc/bash.bashrc", b"/etc/environment")
_OF_BASH: Final = (b".bash_profile", b".bash_login", b".profile", b".bashrc", b".bash_aliases")
_OF_OTHERS: Final = {
    b"zsh": (b".zshenv", b".zprofile", b".zshrc", b".zlogin"),
    b"fish": (b".config/fish/config.fish", b".config/fish/conf.d"),
}
# What makes a set-up different from directory to directory, for those who manage versions.
_OF_PLACE: Final = (b".envrc", b"mise.toml", b".mise.toml", b".tool-versions", b".nvmrc")


# `. FILE`, `source FILE`, and directories all of which is read.
_READS: Final = re.compile(
    rb"""(?:^|[\s;&|])(?:\.|source)[ \t]+["']?((?:~|\$HOME|\$\{HOME\})?/[\w./+-]+)""", re.MULTILINE
)
_READS_ALL: Final = re.compile(rb"""((?:~|\$HOME|\$\{HOME\})?/[\w./+-]+)["']?/\*""")
_AT_HOME: Final = re.compile(rb"\A(?:~|\$HOME|\$\{HOME\})/")
_MOST: Final = 64 * 1024  # bytes of a file that is looked at
_MOST_FILES: Final = 64


class Snapshot(Struct, frozen=True, kw_only=True):
    made: float
    state: State | None  # None: it could not be had


def user_shell(env: Mapping[bytes, bytes]) -> bytes:
    """By its name."""
    return os.path.basename(env.get(b"SHELL", b""))


def files(env: Mapping[bytes, bytes], place: bytes) -> list[bytes]:
    """All that a set-up is made of, as far as one can know."""
    home = env.get(b"HOME", b"")
    zsh = env.get(b"ZDOTDIR", home)
    shell = user_shell(env)
    mine = [home + b"/" + name for name in _OF_BASH] if home else []
    others = [
        (zsh if shell == b"zsh" else home) + b"/" + name for name in _OF_OTHERS.get(shell, ())
    ]
    return [*_OF_ALL, *mine, *others, *(place + b"/" + name for name in _OF_PLACE)]


def signature(env: Mapping[bytes, bytes], place: bytes) -> str:
    """The same for as long as nothing has changed of what would be read here."""
    home = env.get(b"HOME", b"")
    said: list[object] = [home, env.get(b"SHELL"), env.get(b"PATH"), place]
    todo, seen = files(env, place), set[bytes]()
    for path in todo:  # which grows meanwhile
        with suppress(OSError):
            found = os.stat(path)
            stamp = (path, found.st_mtime_ns, found.st_size, found.st_ino)
            said.append(stamp)
            readable = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
            if readable and path not in seen and len(seen) < _MOST_FILES:
                seen.add(path)
                todo += _mentioned(stamp, home)
    return digest(msgspec.msgpack.encode(said), 12)


@lru_cache(maxsize=256)
def _mentioned(stamp: tuple[bytes, int, int, int], home: bytes) -> tuple[bytes, ...]:
    """Files that this one reads, as far as it says so plainly; of a directory, those that are in
    it. `stamp` says which version of it is meant. Raises OSError."""
    path = stamp[0]
    if os.path.isdir(path):
        return tuple(path + b"/" + name for name in sorted(os.listdir(path)))
    with open(path, "rb") as file:
        text = file.read(_MOST)
    named = [*_READS.findall(text), *_READS_ALL.findall(text)]
    return tuple(_AT_HOME.sub(lambda _: home + b"/", each) for each in named)


def load(name: str) -> Snapshot | None:
    """None: nobody has made it yet, or not lately."""
    try:
        with open(_path(name), "rb") as file:
            found = msgspec.msgpack.decode(file.read(), type=Snapshot)
    except (OSError, msgspec.MsgspecError):
        return None
    failed = found.state is None and time.time() - found.made > _RETRY
    return None if failed else found


def save(name: str, made: Snapshot) -> None:
    """Raises OSError."""
    private_directory(os.path.dirname(_path(name)))
    replace(_path(name), msgspec.msgpack.encode(made))


def _path(name: str) -> str:
    return f"{safe_home()}/snapshots/{name}"
