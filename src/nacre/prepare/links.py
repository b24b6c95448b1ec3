"""The step `links`: internal URLs become what they stand for.

In a command, a URL is a word, or a whole quoted string, or the end of a word (`--file=local://x`);
inside a larger quoted string it is prose and stays. It is replaced by a path, quoted for the shell.
In variables and in the directory the path stands as it is.
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from nacre.caller import Caller, Resolved
from nacre.plan import Chore, Plan
from nacre.refusals import BadLink
from nacre.script.quote import quote
from nacre.script.texts import Piece, texts
from nacre.text import decode

SCHEMES: Final = ("artifact", "skill", "agent", "plan", "memory", "rule", "local")


class _Bad(Exception):
    def __init__(self, link: BadLink) -> None:
        self.link = link


def links(schemes: Sequence[str] = SCHEMES) -> Callable[[Plan, Caller], Plan | BadLink]:
    """A step for these schemes; everything else that looks like a URL is left alone."""
    url = re.compile(rb"(?:^|(?<=[=@,]))(" + "|".join(schemes).encode() + rb")://(.*)", re.DOTALL)

    def step(plan: Plan, caller: Caller) -> Plan | BadLink:
        """Put paths in the place of internal URLs."""
        command = plan.command
        given = (command.script, command.cwd, *command.extra.values())
        if not any(b"://" in each for each in given):
            return plan
        chores: list[Chore] = []
        try:
            made = msgspec.structs.replace(
                command,
                script=_in_script(command.script, url, caller, chores),
                cwd=_whole(_as_given(command.cwd, caller, url), command.cwd, url, caller, chores),
                extra={
                    name: _whole(value, value, url, caller, chores)
                    for name, value in command.extra.items()
                },
            )
        except _Bad as bad:
            return bad.link
        return msgspec.structs.replace(plan, command=made, chores=(*plan.chores, *chores))

    return step


def _as_given(cwd: bytes, caller: Caller, url: re.Pattern[bytes]) -> bytes:
    """A URL as directory was taken for a relative path when it was resolved."""
    beneath = cwd.removeprefix(caller.cwd.rstrip(b"/") + b"/")
    return beneath if url.match(beneath.replace(b":/", b"://", 1)) else cwd


def _whole(
    text: bytes, otherwise: bytes, url: re.Pattern[bytes], caller: Caller, chores: list[Chore]
) -> bytes:
    """A value that is a URL from its first byte to its last."""
    found = url.match(text) or url.match(text.replace(b":/", b"://", 1))
    if not found:
        return otherwise
    return _resolved(found[1], found[2], caller, chores)


def _in_script(script: bytes, url: re.Pattern[bytes], caller: Caller, chores: list[Chore]) -> bytes:
    made = script
    pieces = sorted(texts(script), key=lambda piece: piece.start, reverse=True)
    for piece in pieces:
        edit = _edit(piece, url, caller, chores)
        if edit is not None:
            start, text = edit
            made = made[:start] + text + made[piece.end :]
    return made


def _edit(
    piece: Piece, url: re.Pattern[bytes], caller: Caller, chores: list[Chore]
) -> tuple[int, bytes] | None:
    """Where to put what, for the URL in this piece, if there is one."""
    if piece.text is None:
        return None
    found = url.match(piece.text) if piece.quoted else url.search(piece.text)
    if not found or (piece.quoted and re.search(rb"\s", piece.text)):
        return None
    scheme, rest = found[1], found[2]
    if piece.goes_on:
        shown = decode(scheme + b"://" + rest)
        problem = "goes on with something that only the shell knows; write the URL out"
        raise _Bad(BadLink(url=shown, problem=problem))
    path = quote(_resolved(scheme, rest, caller, chores))
    return piece.start + (0 if piece.quoted else found.start()), path


def _resolved(scheme: bytes, rest: bytes, caller: Caller, chores: list[Chore]) -> bytes:
    name = scheme.decode()
    shown = decode(scheme + b"://" + rest)
    resolver = caller.resolvers.get(name)
    if resolver is None:
        known = ", ".join(sorted(caller.resolvers)) or "none"
        problem = f"nothing here resolves {name}:// URLs; schemes with a resolver: {known}"
        raise _Bad(BadLink(url=shown, problem=problem))
    try:
        found: Resolved = resolver(safe(rest))
    except LookupError as error:
        problem = str(error.args[0] if error.args else error)
        raise _Bad(BadLink(url=shown, problem=problem)) from None
    except Exception as error:  # noqa: BLE001 (the host's own code)
        raise _Bad(BadLink(url=shown, problem=f"its resolver failed: {error}")) from None
    chores.extend(found.chores)
    return found.path


def safe(rest: bytes) -> str:
    """What stands behind the scheme, decoded; LookupError when it leads out of its place."""
    text = rest
    for _ in range(4):  # encoded twice is still encoded
        decoded = unquote_to_bytes(text)
        if decoded == text:
            break
        text = decoded
    if b"\0" in text or b"\n" in text:
        raise LookupError("holds a character that no name can; remove it")
    parts = text.replace(b"\\", b"/").split(b"/")
    if b".." in parts:
        raise LookupError("leads out of its place with ..; name what is inside")
    if text.startswith((b"/", b"\\")) or re.match(rb"[A-Za-z]:[\\/]", text):
        raise LookupError("is an absolute path; name what is inside, without the slash")
    if not text.strip(b"/"):
        raise LookupError("names nothing; write what you want behind the ://")
    try:
        return text.decode()
    except UnicodeDecodeError:
        return os.fsdecode(text)
