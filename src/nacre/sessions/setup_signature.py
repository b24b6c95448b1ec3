"""Signature of a user's shell set-up: a digest that changes when one of the set-up files changes.

Set-up files are the startup files of the user's shell, the files that the startup files source by a
literal path, and the files of version managers in the caller's directory.
"""

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec

from nacre.model.ids import digest

_SYSTEM_FILES: Final = (b"/etc/profile", b"/etc/bash.bashrc", b"/etc/environment")
_BASH_FILES: Final = (b".bash_profile", b".bash_login", b".profile", b".bashrc", b".bash_aliases")
_OTHER_SHELL_FILES: Final = {
    b"zsh": (b".zshenv", b".zprofile", b".zshrc", b".zlogin"),
    b"fish": (b".config/fish/config.fish", b".config/fish/conf.d"),
}
# Files that tell a version manager or direnv which programs and variables a directory uses.
_DIRECTORY_FILES: Final = (b".envrc", b"mise.toml", b".mise.toml", b".tool-versions", b".nvmrc")
# `_READS` matches shell code that sources a file with `source` or `.`; `_READS_ALL` matches
# `DIRECTORY/*`, which stands for all files of a directory.
_READS: Final = re.compile(
    rb"""(?:^|[\s;&|])(?:\.|source)[ \t]+["']?((?:~|\$HOME|\$\{HOME\})?/[\w./+-]+)""", re.MULTILINE
)
_READS_ALL: Final = re.compile(rb"""((?:~|\$HOME|\$\{HOME\})?/[\w./+-]+)["']?/\*""")
_AT_HOME: Final = re.compile(rb"\A(?:~|\$HOME|\$\{HOME\})/")
_MAX_BYTES: Final = 64 * 1024  # maximum bytes to read of a shell startup file
_MAX_FILES: Final = 64


def user_shell_name(env: Mapping[bytes, bytes]) -> bytes:
    """Return the name of the user's shell, such as `bash`, `zsh` or `fish`."""
    return os.path.basename(env.get(b"SHELL", b""))


def _setup_files(env: Mapping[bytes, bytes], place: bytes) -> list[bytes]:
    """Return the paths of all files that may define the user's shell set-up in the directory
    `place`."""
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
    """Return a digest of the files that define the user's shell set-up in the directory `place`."""
    home = env.get(b"HOME", b"")
    parts: list[object] = [home, env.get(b"SHELL"), env.get(b"PATH"), place]
    todo, seen = _setup_files(env, place), set[bytes]()
    for path in todo:  # the loop appends to `todo` the files that the file `path` sources
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
    """Return the files that a shell startup file sources by a literal path, or the files in a
    directory. `stamp` (path, modification time, size and inode of the startup file or directory) is
    the cache key, so that a changed file is read again. Raises OSError.
    """
    path = stamp[0]
    if os.path.isdir(path):
        return tuple(path + b"/" + name for name in sorted(os.listdir(path)))
    with open(path, "rb") as file:
        text = file.read(_MAX_BYTES)
    named = [*_READS.findall(text), *_READS_ALL.findall(text)]
    return tuple(_AT_HOME.sub(lambda _: home + b"/", each) for each in named)
