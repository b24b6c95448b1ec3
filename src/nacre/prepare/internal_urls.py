"""Preparation step that replaces internal URLs, such as `artifact://17`, by paths of files.

In a script, an internal URL is a word, a whole quoted string, or the end of a word
(`--file=local://x`). An internal URL inside a larger quoted string counts as prose and stays
unchanged. A path that replaces a URL in a script is quoted for the shell. A path that replaces a
URL in a variable or in the working directory is inserted without quotes. The caller supplies one
resolver function for each URL scheme, which returns the path for an internal URL.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from nacre.bash.literal_spans import Literal, find_literals
from nacre.bash.quoting import quote
from nacre.model.caller import Caller, Resolved
from nacre.model.plan import Chore, Plan
from nacre.model.refusals import BadLink
from nacre.text.clean import decode

SCHEMES: Final = ("artifact", "skill", "agent", "plan", "memory", "rule", "local")


class _BadUrl(Exception):
    def __init__(self, link: BadLink) -> None:
        self.link = link


def internal_urls_step(
    schemes: Sequence[str] = SCHEMES,
) -> Callable[[Plan, Caller], Plan | BadLink]:
    """Return a preparation step that replaces internal URLs of the given schemes, and of the
    schemes for which the host has a resolver; URLs of other schemes stay unchanged."""

    def step(plan: Plan, caller: Caller) -> Plan | BadLink:
        """Replace the internal URLs in the script, the directory and the call's variables by
        paths."""
        command = plan.command
        given = (command.script, command.cwd, *command.call_env.values())
        if not any(b"://" in each for each in given):
            return plan
        whole, inside = _build_patterns((*schemes, *caller.host_schemes))
        chores: list[Chore] = []
        try:
            replaced = msgspec.structs.replace(
                command,
                script=_replace_in_script(command.script, whole, inside, caller, chores),
                cwd=_replace_whole(command.cwd, whole, caller, chores),
                call_env={
                    name: _replace_whole(value, whole, caller, chores)
                    for name, value in command.call_env.items()
                },
            )
        except _BadUrl as bad:
            return bad.link
        return msgspec.structs.replace(plan, command=replaced, chores=(*plan.chores, *chores))

    return step


@lru_cache(maxsize=16)
def _build_patterns(schemes: tuple[str, ...]) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return two patterns: the first matches a text that is an internal URL as a whole; the second
    finds an internal URL inside a word, for example after `=`."""
    known = b"(" + "|".join(schemes).encode() + b")://"
    whole = re.compile(known + rb"(.*)", re.DOTALL)
    return whole, re.compile(rb"(?:^|(?<=[=@,]))" + known + rb"([^,]*)", re.DOTALL)


def _replace_whole(
    text: bytes, url: re.Pattern[bytes], caller: Caller, chores: list[Chore]
) -> bytes:
    """Return the path for a value that is exactly one internal URL; return any other value
    unchanged."""
    found = url.fullmatch(text)
    return _resolve(found[1], found[2], caller, chores) if found else text


def _replace_in_script(
    script: bytes,
    whole: re.Pattern[bytes],
    inside: re.Pattern[bytes],
    caller: Caller,
    chores: list[Chore],
) -> bytes:
    replaced = script
    pieces = sorted(find_literals(script), key=lambda piece: piece.start, reverse=True)
    for piece in pieces:
        for start, end, path in _find_edits(piece, whole, inside, caller, chores):
            replaced = replaced[:start] + quote(path) + replaced[end:]
    return replaced


def _find_edits(
    piece: Literal,
    whole: re.Pattern[bytes],
    inside: re.Pattern[bytes],
    caller: Caller,
    chores: list[Chore],
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the start, the end and the path of each internal URL in a piece of the script, from
    last to first."""
    text = piece.text
    if text is None:
        return
    if piece.quoted:
        found = [] if re.search(rb"\s", text) else [*whole.finditer(text)][:1]
        if not found or found[0].start():
            return
    else:
        found = [each for each in inside.finditer(text) if b"://" not in text[: each.start()]]
        found = [*inside.finditer(text)] if found else []
    for each in reversed(found):
        if piece.goes_on and each.end() == len(text):
            problem = "is followed by more text; write the whole URL, or quote it completely"
            raise _BadUrl(BadLink(url=decode(each[0]), problem=problem))
        path = _resolve(each[1], each[2], caller, chores)
        if piece.quoted:
            yield piece.start, piece.end, path
        else:
            yield piece.start + each.start(), piece.start + each.end(), path


def _resolve(scheme: bytes, rest: bytes, caller: Caller, chores: list[Chore]) -> bytes:
    name = scheme.decode()
    shown = decode(scheme + b"://" + rest).replace("\n", " ")
    resolver = caller.resolvers.get(name)
    if resolver is None:
        known = ", ".join(sorted(caller.resolvers)) or "none"
        problem = f"{name}:// URLs cannot be resolved here; schemes with a resolver: {known}"
        raise _BadUrl(BadLink(url=shown, problem=problem))
    try:
        found: Resolved = resolver(decode_path(rest))
    except LookupError as error:
        problem = str(error.args[0]) if error.args else "is unknown to its resolver"
        raise _BadUrl(BadLink(url=shown, problem=problem)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a resolver is code of the host)
        raise _BadUrl(BadLink(url=shown, problem=f"its resolver failed: {error}")) from None
    chores.extend(found.chores)
    return found.path


def decode_path(rest: bytes) -> str:
    """Percent-decode the part of an internal URL after `://`. Raises LookupError if the decoded
    path of the URL is empty or absolute, or contains `..`, a NUL byte or a newline."""
    text = rest
    for _ in range(4):  # a URL may be percent-encoded more than once
        decoded = unquote_to_bytes(text)
        if decoded == text:
            break
        text = decoded
    if b"\0" in text or b"\n" in text:
        raise LookupError("contains a character that is not allowed in a name; remove it")
    parts = text.replace(b"\\", b"/").split(b"/")
    if b".." in parts:
        raise LookupError("leads out of its directory with ..; give a path inside of it")
    if text.startswith((b"/", b"\\")) or re.match(rb"[A-Za-z]:[\\/]", text):
        raise LookupError("is an absolute path; leave out the leading slash")
    if not text.strip(b"/"):
        raise LookupError("has no name; write one after ://")
    try:
        return text.decode()
    except UnicodeDecodeError:
        return os.fsdecode(text)
