"""What a user's own set-up makes of a shell, read once and kept for as long as it stays as it is.

    snapshots/<digest of what was read, and for whom>

One private file each, written by `sessions.setup_cache`. A set-up that could not be read is stored
as well, empty, and is tried again after a while.
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

from nacre.model.ids import digest
from nacre.shell_state.state import State
from nacre.store.state_dir import make_private_directory, private_state_dir, write_atomically

_RETRY_SECONDS: Final = 600.0  # seconds after which a failure is forgotten
_SYSTEM_FILES: Final = (b"/etc/profile", b"/etc/bash.bashrc", b"/etc/environment")
_BASH_FILES: Final = (b".bash_profile", b".bash_login", b".profile", b".bashrc", b".bash_aliases")
_OTHER_SHELL_FILES: Final = {
    b"zsh": (b".zshenv", b".zprofile", b".zshrc", b".zlogin"),
    b"fish": (b".config/fish/config.fish", b".config/fish/conf.d"),
}
# What makes a set-up different from directory to directory, for those who manage versions.
_DIRECTORY_FILES: Final = (b".envrc", b"mise.toml", b".mise.toml", b".tool-versions", b".nvmrc")


# `. FILE`, `source FILE`, and directories all of which is read.
_READS: Final = re.compile(
    rb"""(?:^|[\s;&|])(?:\.|source)[ \t]+["']?((?:~|\$HOME|\$\{HOME\})?/[\w./+-]+)""", re.MULTILINE
)
_READS_ALL: Final = re.compile(rb"""((?:~|\$HOME|\$\{HOME\})?/[\w./+-]+)["']?/\*""")
_AT_HOME: Final = re.compile(rb"\A(?:~|\$HOME|\$\{HOME\})/")
_MAX_BYTES: Final = 64 * 1024  # bytes of a file that is looked at
_MAX_FILES: Final = 64


class SetupSnapshot(Struct, frozen=True, kw_only=True, rename={"created": "made"}):
    created: float
    state: State | None  # None: it could not be had


def user_shell_name(env: Mapping[bytes, bytes]) -> bytes:
    """By its name."""
    return os.path.basename(env.get(b"SHELL", b""))


def setup_files(env: Mapping[bytes, bytes], place: bytes) -> list[bytes]:
    """All that a set-up is made of, as far as one can know."""
    home = env.get(b"HOME", b"")
    zsh = env.get(b"ZDOTDIR", home)
    shell = user_shell_name(env)
    mine = [home + b"/" + name for name in _BASH_FILES] if home else []
    others = [
        (zsh if shell == b"zsh" else home) + b"/" + name
        for name in _OTHER_SHELL_FILES.get(shell, ())
    ]
    return [*_SYSTEM_FILES, *mine, *others, *(place + b"/" + name for name in _DIRECTORY_FILES)]


def compute_signature(env: Mapping[bytes, bytes], place: bytes) -> str:
    """The same for as long as nothing has changed of what would be read here."""
    home = env.get(b"HOME", b"")
    parts: list[object] = [home, env.get(b"SHELL"), env.get(b"PATH"), place]
    todo, seen = setup_files(env, place), set[bytes]()
    for path in todo:  # which grows meanwhile
        with suppress(OSError):
            found = os.stat(path)
            stamp = (path, found.st_mtime_ns, found.st_size, found.st_ino)
            parts.append(stamp)
            readable = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
            if readable and path not in seen and len(seen) < _MAX_FILES:
                seen.add(path)
                todo += _referenced_files(stamp, home)
    return digest(msgspec.msgpack.encode(parts), 12)


@lru_cache(maxsize=256)
def _referenced_files(stamp: tuple[bytes, int, int, int], home: bytes) -> tuple[bytes, ...]:
    """Files that this one reads, as far as it says so plainly; of a directory, those that are in
    it. `stamp` says which version of it is meant. Raises OSError."""
    path = stamp[0]
    if os.path.isdir(path):
        return tuple(path + b"/" + name for name in sorted(os.listdir(path)))
    with open(path, "rb") as file:
        text = file.read(_MAX_BYTES)
    named = [*_READS.findall(text), *_READS_ALL.findall(text)]
    return tuple(_AT_HOME.sub(lambda _: home + b"/", each) for each in named)


def load_snapshot(name: str) -> SetupSnapshot | None:
    """None: nobody has made it yet, or not lately."""
    try:
        with open(_snapshot_path(name), "rb") as file:
            found = msgspec.msgpack.decode(file.read(), type=SetupSnapshot)
    except (OSError, msgspec.MsgspecError):
        return None
    failed = found.state is None and time.time() - found.created > _RETRY_SECONDS
    return None if failed else found


def save_snapshot(name: str, snapshot: SetupSnapshot) -> None:
    """Raises OSError."""
    make_private_directory(os.path.dirname(_snapshot_path(name)))
    write_atomically(_snapshot_path(name), msgspec.msgpack.encode(snapshot))


def _snapshot_path(name: str) -> str:
    return f"{private_state_dir()}/snapshots/{name}"
