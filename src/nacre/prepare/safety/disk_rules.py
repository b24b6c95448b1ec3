"""The pack `disk` of safety rules: commands that destroy a system or a user's files beyond
repair."""

import re
from collections.abc import Iterator
from typing import Final

from nacre.bash.commands import ParsedCommand, Redirect, Word, known_prefix
from nacre.prepare.option_parsing import find_operands, has_flag
from nacre.prepare.safety.protected_paths import (
    CRITICAL,
    SYSTEM,
    is_protected,
    named_devices,
    possible_paths,
)
from nacre.prepare.safety.rule import RuleContext, RuleMatch, SafetyRule, show_words

# Programs that erase the devices named in their arguments. A program in `_ERASE` always erases, a
# program in `_ERASE_WITH` erases only with one of the listed arguments, and a program in
# `_ERASE_UNLESS` erases unless one of the listed arguments is given.
_ERASE: Final = {
    *(b"mkfs", b"mke2fs", b"mkdosfs", b"mkntfs", b"mkexfatfs", b"mkswap", b"newfs", b"blkdiscard"),
    *(b"shred", b"pvcreate", b"cfdisk"),
}
_ERASE_WITH: Final[dict[bytes, frozenset[bytes]]] = {
    b"wipefs": frozenset({b"-a", b"--all", b"-af", b"-fa", b"-o", b"--offset"}),
    b"mdadm": frozenset({b"-C", b"--create", b"--zero-superblock"}),
    b"badblocks": frozenset({b"-w", b"-n", b"-ws", b"-wsv", b"-sw", b"-wv"}),
    b"hdparm": frozenset({b"--security-erase", b"--trim-sector-ranges", b"--write-sector"}),
    b"cryptsetup": frozenset({b"luksFormat", b"luksErase", b"erase", b"reencrypt"}),
    b"nvme": frozenset({b"format", b"sanitize", b"write-zeroes"}),
    b"parted": frozenset({b"mklabel", b"mktable", b"mkpart", b"rm", b"resizepart"}),
    b"sgdisk": frozenset(
        {
            b"-o",
            b"-Z",
            b"-z",
            b"-n",
            b"-d",
            b"-g",
            b"-G",
            b"--zap-all",
            b"--clear",
            b"--zap",
            b"--new",
        }
        | {b"--delete", b"--mbrtogpt"}
    ),
}
_ERASE_UNLESS: Final[dict[bytes, frozenset[bytes]]] = {
    b"fdisk": frozenset({b"-l", b"--list", b"-s", b"-x"}),
    b"gdisk": frozenset({b"-l"}),
    b"sfdisk": frozenset(
        {b"-l", b"-d", b"-s", b"-V", b"-F", b"-J", b"--list", b"--dump", b"--json", b"--verify"}
    ),
}
_NARROWS: Final = {
    *(b"-name", b"-iname", b"-path", b"-ipath", b"-wholename", b"-regex", b"-iregex", b"-lname"),
    *(
        b"-mtime",
        b"-mmin",
        b"-ctime",
        b"-cmin",
        b"-atime",
        b"-amin",
        b"-newer",
        b"-size",
        b"-empty",
    ),
    *(
        b"-user",
        b"-group",
        b"-uid",
        b"-gid",
        b"-perm",
        b"-inum",
        b"-samefile",
        b"-nouser",
        b"-nogroup",
    ),
    *(b"-xtype", b"-links", b"-fstype"),
}
_ALONE: Final = {b"-empty", b"-nouser", b"-nogroup"}  # tests of `find` that take no value
_EXECUTES: Final = {b"-exec", b"-execdir", b"-ok", b"-okdir"}
_FORKS: Final = re.compile(rb"fork\s*(?:\(\s*\))?\s*while\b|while\s*\(?\s*1?\s*\)?\s*\{\s*fork")
_MODE: Final = re.compile(rb"-[rwxXst]+")
_FINDERS: Final = (b"find", b"gfind", b"bfs")
_DELETERS: Final = {b"rm", b"unlink", b"rmdir", b"shred", b"srm"}


def _remove(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    if not has_flag(command.arguments, b"rR", b"--recursive"):
        return
    for word in find_operands(command.arguments):
        for path in possible_paths(word, command):
            if is_protected(path, word, around.home, SYSTEM):
                yield RuleMatch(
                    words=(command.words[0], word),
                    shown=show_words(command.words),
                    why=f"would remove {_describe_path(path)} and everything in it",
                    instead="name the files or the subdirectory to remove",
                )


def _describe_path(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def _find(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    if b"-delete" in _primaries(command.arguments) or _runs_deleter(command, around):
        yield from _is_wide_search(command, command, around)


def _primaries(arguments: tuple[Word, ...]) -> set[bytes]:
    """Return the tests and actions of a `find` command, without the values of tests and the
    commands of `-exec`."""
    found: set[bytes] = set()
    at = 0
    while at < len(arguments):
        text = known_prefix(arguments[at])
        found.add(text)
        if text in _EXECUTES:
            while at < len(arguments) and arguments[at].text not in (b";", b"+"):
                at += 1
        elif text in _NARROWS - _ALONE or text in (b"-type", b"-maxdepth", b"-mindepth"):
            at += 1
        at += 1
    return found


def _find_piped(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    """Match a `find` over a protected directory whose results are piped to a deleting program, as
    in `find / | xargs rm`."""
    feeder = command.feeder
    if b"xargs" in command.via and feeder is not None and feeder.name in _FINDERS:
        yield from _is_wide_search(feeder, command, around)


def _is_wide_search(
    find: ParsedCommand, deleter: ParsedCommand, around: RuleContext
) -> Iterator[RuleMatch]:
    """Yield a match for each protected start directory of a `find` whose results are deleted. The
    safety rule always matches a deleting `find` that starts at `/`. A deleting `find` that starts
    at a protected directory other than `/` matches only if no test such as `-name` narrows its
    search."""
    arguments = find.arguments
    at = 0
    while at < len(arguments) and known_prefix(arguments[at])[:2] in (
        b"-H",
        b"-L",
        b"-P",
        b"-O",
        b"-D",
    ):
        at += 2 if arguments[at].text == b"-D" else 1
    starts = []
    for word in arguments[at:]:
        if known_prefix(word).startswith((b"-", b"(", b"!")):
            break
        starts.append(word)
    first = find.words[0]
    here = Word(start=first.start, end=first.end, text=b".", prefix=b".")
    narrowed = bool(_primaries(arguments) & _NARROWS)
    for word in starts or [here]:
        for path in possible_paths(word, find):
            if path == b"/" or (not narrowed and is_protected(path, word, around.home, SYSTEM)):
                yield RuleMatch(
                    words=(first, word, *(deleter.words[:1] if deleter is not find else ())),
                    shown=show_words(find.words),
                    why=f"would search all of {_describe_path(path)} and delete what it finds",
                    instead="search one directory, and list the matches before deleting them",
                )


def _runs_deleter(command: ParsedCommand, around: RuleContext) -> bool:
    """Return whether this `find` command executes a deleting program, directly or through sudo or a
    shell."""
    return any(
        each.name in _DELETERS
        and {*_FINDERS} & {*each.via}
        and command.start <= each.start <= command.end
        for each in around.analysis.commands
    )


def _permissions(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    if not has_flag(command.arguments, b"R", b"--recursive"):
        return
    given = [*find_operands(command.arguments)]
    # In `chmod -R -x DIRECTORY`, the mode `-x` looks like an option.
    dashed = any(_MODE.fullmatch(known_prefix(word)) for word in command.arguments)
    whole = dashed or has_flag(command.arguments, b"", b"--reference")
    for word in given if whole else given[1:]:
        for path in possible_paths(word, command):
            if is_protected(path, word, around.home, CRITICAL):
                name = (command.name or b"").decode()
                yield RuleMatch(
                    words=(command.words[0], word),
                    shown=show_words(command.words),
                    why=f"would {name} all of {_describe_path(path)}, which breaks the system",
                    instead=f"{name} only the files that need it",
                )


def _writes_device(hit: tuple[Word, ...], target: bytes, command: ParsedCommand) -> RuleMatch:
    return RuleMatch(
        words=(command.words[0], *hit) if command.words else hit,
        shown=show_words(command.words),
        why=f"would overwrite the device {_describe_path(target)}",
        instead="write to a file, and let a person write that file to the disk",
    )


def _dd(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    for word in command.arguments:
        for target in named_devices(word, command, b"of="):
            yield _writes_device((word,), target, command)


def _copies(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    """Match programs such as `cp` and `tee` whose target is a device."""
    del around
    given = [*find_operands(command.arguments)]
    # In `cp -t TARGET FILE`, the target is not the last operand.
    into = has_flag(command.arguments, b"t", b"--target-directory")
    every = into or command.name in (b"tee", b"truncate", b"sponge")
    for word in given if every else given[-1:]:
        for target in named_devices(word, command):
            yield _writes_device((word,), target, command)


def _redirects(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    for redirect in command.redirects:
        if not redirect.is_write:
            continue
        for target in named_devices(redirect.target, command):
            yield RuleMatch(
                redirect=redirect,
                shown=(
                    *show_words(command.words),
                    redirect.operator,
                    _show_redirect(redirect, target),
                ),
                why=f"would overwrite the device {_describe_path(target)}",
                instead="write to a file, and let a person write that file to the disk",
            )


def _show_redirect(redirect: Redirect, target: bytes) -> bytes:
    return redirect.target.text or target


def _format(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    if not _erases(command):
        return
    for word in command.arguments:
        for target in named_devices(word, command):
            yield RuleMatch(
                words=(command.words[0], word),
                shown=show_words(command.words),
                why=f"would erase what is on the device {_describe_path(target)}",
                instead="make a file system in a file (truncate -s 1G disk.img), "
                "and leave devices to a person",
            )


def _erases(command: ParsedCommand) -> bool:
    name, words = command.name or b"", {known_prefix(word) for word in command.arguments}
    if name in _ERASE or name.startswith((b"mkfs.", b"newfs_")):
        return True
    if name in _ERASE_WITH:
        return bool(words & _ERASE_WITH[name])
    return name in _ERASE_UNLESS and not words & _ERASE_UNLESS[name]


def _forks(around: RuleContext) -> Iterator[RuleMatch]:
    for function in around.analysis.functions:
        calls = [
            each for each in function.body if each.words and each.words[0].text == function.name
        ]
        away = [each for each in calls if each.background or each.feeds or each.fed]
        enough = len(calls) > 1 or any(each.loop for each in away)
        if enough and away and not function.decides:
            word = Word(start=function.start, end=function.end, text=function.name)
            yield RuleMatch(
                words=(word,),
                shown=(function.name + b"()",),
                why="calls itself twice each time and never ends: a fork bomb",
                instead="give the recursion an end, or leave it out",
            )


def _perl_forks(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    for word in command.arguments:
        if _FORKS.search(word.text or b""):
            yield RuleMatch(
                words=(command.words[0], word),
                shown=show_words(command.words),
                why="forks without end: a fork bomb",
                instead="give it an end, or leave it out",
            )


RULES: Final = (
    SafetyRule(
        id="disk.remove",
        summary="recursive removal of /, a home or system directory, or everything in one",
        programs=(b"rm", b"srm"),
        check_command=_remove,
    ),
    SafetyRule(
        id="disk.find",
        summary="find that deletes in / (or, without a test, in a home or system directory)",
        programs=_FINDERS,
        check_command=_find,
    ),
    SafetyRule(
        id="disk.find-xargs",
        summary="the same through a pipe into xargs rm",
        programs=(*_DELETERS,),
        check_command=_find_piped,
    ),
    SafetyRule(
        id="disk.permissions",
        summary="chmod, chown or chgrp -R of / or a system directory",
        programs=(b"chmod", b"chown", b"chgrp"),
        check_command=_permissions,
    ),
    SafetyRule(
        id="disk.dd",
        summary="dd onto a block device",
        programs=(b"dd", b"dcfldd"),
        check_command=_dd,
    ),
    SafetyRule(
        id="disk.copy",
        summary="tee, cp, truncate and kin onto a block device",
        programs=(b"tee", b"cp", b"mv", b"install", b"truncate", b"sponge"),
        check_command=_copies,
    ),
    SafetyRule(
        id="disk.redirect", summary="a redirection onto a block device", check_command=_redirects
    ),
    SafetyRule(
        id="disk.format", summary="mkfs, wipefs and kin on a block device", check_command=_format
    ),
    SafetyRule(
        id="disk.fork-bomb",
        summary="a function that only calls itself",
        check_analysis=_forks,
    ),
    SafetyRule(
        id="disk.fork-loop",
        summary="a one-liner that forks without end",
        programs=(b"perl", b"ruby"),
        check_command=_perl_forks,
    ),
)
