"""Recognizing paths to system directories, home directories and devices in a command line."""

import fnmatch
import os
import re
from collections.abc import Iterator
from typing import Final

from nacre.bash.commands import ParsedCommand, Word
from nacre.bash.paths import resolve_path

SYSTEM: Final = frozenset(
    b"/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /libx32 /media /mnt /opt /proc /root /run "
    b"/sbin /srv /sys /usr /var /usr/bin /usr/include /usr/lib /usr/lib32 /usr/lib64 /usr/libexec "
    b"/usr/local /usr/local/bin /usr/local/lib /usr/local/sbin /usr/local/share /usr/sbin "
    b"/usr/share /usr/src /var/lib /var/lib/dpkg /var/spool "
    b"/Applications /Library /System /Users /Volumes /private /private/etc /private/var".split()
)
# Directories whose owner and mode the system depends on. Home directories and /usr/local are not in
# `CRITICAL`, because a change of their owner or mode is an everyday task.
CRITICAL: Final = frozenset(
    b"/ /bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /proc /run /sbin /sys /usr /usr/bin "
    b"/usr/lib /usr/lib64 /usr/libexec /usr/sbin /usr/share /var /var/lib /System /Library "
    b"/private".split()
)
_PATTERN: Final = re.compile(rb"[*?\[]|[@!+]\(")
_HOMES: Final = (b"/home", b"/Users")
_DRIVE: Final = re.compile(rb"/mnt/[a-z]")
# Regular expression for globs that match all files of a directory, such as `*`, `**`, `.*`, `?*`
# and `.[!.]*`.
EVERYTHING: Final = re.compile(
    rb"\.?(?:\*+|\?+\*|\[[!^][^\]]*\]\*|\[a-z\]\*|\[a-zA-Z\]\*|\.\*|[!+*]\(.*\))"
)
_DEVICE: Final = re.compile(
    rb"/dev/(?:(?:s|h|v|xv)d(?:[a-z?*\[]|$)|nvme(?:[\d?*\[]|$)|mmcblk|mtdblock|r?disk[\d*?]"
    rb"|(?:loop|md|sr|zram|nbd|pmem|ram|fd|bcache|rbd|drbd|dasd|sg)[\d*?a-z]*\d|md/|dm-"
    rb"|mapper/(?!control$)|disk/by-|zvol/|block/|root$|[\w.-]*(?:vg|VG|volgroup)[\w.-]*/|k?mem$|port$)"
)
# Temporary directories, which may contain the home directories of tests and throw-away users.
_TEMPORARY: Final = (b"/tmp", b"/var/tmp", b"/private/tmp", b"/dev/shm")
_ALTERNATIVES: Final = re.compile(rb"[@?+*]\(([^()]*)\)")


def possible_paths(word: Word, command: ParsedCommand) -> Iterator[bytes]:
    """Yield the absolute paths that a word of a command may stand for, with globs left
    unexpanded."""
    for text in word.texts:
        if not text:
            continue
        if text.startswith(b"/") or command.cwd is not None:
            yield resolve_path(command.cwd or b"/", text)


def is_protected(path: bytes, word: Word, home: bytes | None, system: frozenset[bytes]) -> bool:
    """Return whether a path or glob names a directory in the set `system`, or all files in such a
    directory. `is_protected` also returns True for home directories if `system` is the set
    SYSTEM."""
    homes = home if system is SYSTEM else None
    if not word.glob or not _PATTERN.search(path):
        return _is(path, homes, system)
    parent, last = os.path.split(path)
    if EVERYTHING.fullmatch(last) and _matches(parent, homes, system):
        return True
    return _matches(path, homes, system) or (
        system is SYSTEM and parent in _HOMES and bool(EVERYTHING.fullmatch(last))
    )


def _is(path: bytes, home: bytes | None, system: frozenset[bytes]) -> bool:
    if path in system:
        return True
    if system is not SYSTEM:
        return False
    if home is not None and len(home) > 1:
        home = resolve_path(b"/", home)
        if path == home or (home.startswith(path + b"/") and path not in _TEMPORARY):
            return True
    return os.path.dirname(path) in _HOMES or bool(_DRIVE.fullmatch(path))


def _matches(pattern: bytes, home: bytes | None, system: frozenset[bytes]) -> bool:
    if not _PATTERN.search(pattern):
        return _is(pattern, home, system)
    if home is not None and os.path.dirname(pattern) in _HOMES:
        return True
    throw_away = home is not None and home.startswith(tuple(each + b"/" for each in _TEMPORARY))
    known = system if home is None or throw_away else {*system, resolve_path(b"/", home)}
    return any(_glob(each, path) for each in _spelled_out(pattern) for path in known)


def _spelled_out(pattern: bytes) -> list[bytes]:
    """Expand the alternatives of an extended glob: `/@(etc|usr)` becomes `/etc` and `/usr`."""
    found = _ALTERNATIVES.search(pattern)
    if not found:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [before + each + after for each in found[1].split(b"|")[:16]]


def _glob(pattern: bytes, path: bytes) -> bool:
    """Return whether a glob matches a path. Path components are compared one by one, as in the
    shell: a star does not match a slash."""
    theirs, ours = pattern.split(b"/"), path.split(b"/")
    return len(theirs) == len(ours) and all(
        fnmatch.fnmatchcase(one.decode("latin-1"), other.decode("latin-1"))
        for one, other in zip(ours, theirs, strict=True)
    )


def named_devices(word: Word, command: ParsedCommand, prefix: bytes = b"") -> Iterator[bytes]:
    """Yield the disk and memory devices that a command word may name after a prefix such as
    `of=`."""
    for text in word.texts or ((word.prefix,) if word.prefix else ()):
        target = text.removeprefix(prefix)
        if not text.startswith(prefix) or not target:
            continue
        if target.startswith(b"/") or command.cwd is not None:
            path = resolve_path(command.cwd or b"/", target)
            if _DEVICE.match(path):
                yield path
