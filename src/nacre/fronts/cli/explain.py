"""`nacre explain`: what the checks see in a command and would do about it. Runs nothing."""

import argparse
import json
import os
import sys
import unicodedata
from typing import Any, Final

from msgspec import Struct

from nacre import contracts
from nacre.caller import Caller
from nacre.contracts.arguments import read_script
from nacre.findings import (
    AnyFinding,
    Dropped,
    Lifted,
    NeedsTerminal,
    Signed,
    Suggested,
    Unsigned,
)
from nacre.fronts.cli.common import (
    UsageError,
    complain,
    environment_as_given,
    printable,
    settings,
    show,
)
from nacre.prepare.better_tools import DEFAULTS
from nacre.prepare.decide import Decision, decide
from nacre.prepare.interception import intercept
from nacre.prepare.terminal import needs
from nacre.prepare.trailers import commits
from nacre.refusals import Dangerous, Intercepted, Refused
from nacre.script.commands import Command, Reading, Redirect, Word
from nacre.script.quote import quote
from nacre.script.read import read
from nacre.settings import load
from nacre.store.links import resolvers
from nacre.store.workspace import workspace
from nacre.text import decode

_MOST_LINES: Final = 40  # of a script


class Explained(Struct, frozen=True, kw_only=True):
    decision: Decision
    reading: Reading  # of the command as it was given
    suggestion: Suggested | None
    terminal: tuple[NeedsTerminal, ...]


def main(options: argparse.Namespace) -> int:
    try:
        explained = explain(
            options.command,
            contract=options.contract,
            tools=[name for name in options.tools.split(",") if name],
            options=settings(options.set),
            cwd=options.cwd,
        )
    except UsageError as error:
        complain(str(error))
        return 2
    if options.json:
        show(json.dumps(as_json(explained), ensure_ascii=False))
    else:
        lines = (printable(line.rstrip()) for line in _lines(explained))
        show("\n".join(lines))
    return 0


def explain(
    command: str, *, contract: str, tools: list[str], options: dict[str, str], cwd: str | None
) -> Explained:
    """Raises UsageError."""
    try:
        here = os.path.abspath(os.fsencode(cwd or os.getcwd()))
        checks = contracts.checks(contract, load(contract, here, options).chosen)
        script = read_script(_given(command))
    except (ValueError, OSError, Refused) as error:
        raise UsageError(str(error)) from None
    place = workspace(here)
    caller = Caller(
        cwd=here,
        workspace=place,
        env=environment_as_given(),
        tools=tuple(tools),
        resolvers=resolvers(place),
    )
    decision = decide(checks.plan(script, caller), checks.steps, caller)
    reading = read(script, home=caller.home, cwd=here)
    found = intercept(reading, getattr(checks, "rules", DEFAULTS), tools)
    return Explained(
        decision=decision,
        reading=reading,
        suggestion=None
        if found is None
        else Suggested(tool=found.rule.tool, message=found.rule.message, arguments=found.arguments),
        terminal=tuple(needs(reading)),
    )


def _given(command: str) -> str:
    if command != "-":
        return command
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def as_json(explained: Explained) -> dict[str, Any]:
    decision, suggestion = explained.decision, explained.suggestion
    refusal = decision.refusal
    lifted = [each.path for each in decision.findings if isinstance(each, Lifted)]
    return {
        "readable": explained.reading.unreadable is None,
        "commands": [_words(each) for each in explained.reading.commands if each.words],
        "verdict": "run" if refusal is None else "refuse",
        "rule": refusal.rule if isinstance(refusal, Dangerous | Intercepted) else None,
        "why": None if refusal is None else _why(refusal),
        "instead": _instead(refusal),
        "commits": any(commits(explained.reading)),
        "cwd": decode(lifted[0]) if lifted else None,
        "script": decode(decision.plan.command.script),
        "suggestion": None
        if suggestion is None
        else {"tool": suggestion.tool, "arguments": suggestion.arguments},
        "needs_terminal": bool(explained.terminal),
    }


def _words(command: Command) -> list[str | None]:
    return [None if word.text is None else decode(word.text) for word in command.words]


def _why(refusal: object) -> str:
    match refusal:
        case Dangerous(matched=matched, why=why):
            return f"{' '.join(matched)} {why}"
        case Intercepted(message=message):
            return message
        case _:
            return str(refusal)


def _instead(refusal: object) -> str | None:
    match refusal:
        case Dangerous(instead=instead):
            return instead
        case Intercepted(tool=tool):
            return f"call the tool {tool}"
        case _:
            return None


# For people


def _lines(explained: Explained) -> list[str]:
    decision, reading = explained.decision, explained.reading
    refusal = decision.refusal
    lines = []
    if refusal is None:
        lines.append("would run")
    else:
        rule = getattr(refusal, "rule", None)
        lines.append(f"would be refused, by {rule}" if rule else "would be refused")
        lines += ["", *_underlined(decision.plan.command.script, getattr(refusal, "spans", ()))]
        lines.append(f"  {_why(refusal)}")
        instead = _instead(refusal)
        if instead is not None:
            lines.append(f"  instead: {instead}")
    if reading.unreadable is not None:
        lines += ["", f"not all of it can be read: {reading.unreadable.why}; bash will say more"]
    lines += ["", "commands"]
    lines += [f"  {_shown(each)}" for each in reading.commands if each.words] or ["  none"]
    notes = [*_notes(explained)]
    if notes:
        lines += ["", "notes", *(f"  {note}" for note in notes)]
    command = decision.plan.command
    if refusal is None and command.script != command.given:
        lines += [
            "",
            "bash would get",
            *(f"  {each}" for each in decode(command.script).split("\n")),
        ]
    return lines


def _shown(command: Command) -> str:
    words = " ".join([*map(_word, command.words), *map(_redirect, command.redirects)])
    through = [decode(each) for each in command.via]
    remarks = [
        *([f"through {', '.join(through)}"] if through else []),
        *(["in a substitution"] if command.substitution else []),
        *(["in a function"] if command.function else []),
        *(["in the background"] if command.background else []),
    ]
    return f"{words}    ({'; '.join(remarks)})" if remarks else words


def _word(word: Word) -> str:
    if word.text is None:
        return "?"
    return decode(word.text if word.glob else quote(word.text))


def _redirect(redirect: Redirect) -> str:
    usual = 0 if redirect.operator.startswith(b"<") else 1
    number = redirect.descriptor
    before = "{?}" if number is None else "" if number == usual else str(number)
    target = "…" if redirect.operator == b"<<" else _word(redirect.target)
    return f"{before}{decode(redirect.operator)} {target}"


def _notes(explained: Explained) -> list[str]:
    notes = [note for each in explained.decision.findings if (note := _note(each))]
    if explained.suggestion is not None:
        notes.append(f"suggestion: {explained.suggestion.message}")
    notes += [f"{each.words}: {each.why}; {each.instead}" for each in explained.terminal]
    return notes


def _note(finding: AnyFinding) -> str | None:
    match finding:
        case Lifted(path=path):
            return f"runs in {decode(path)}, where its cd leads"
        case Dropped(names=names):
            return f"does not get these variables: {', '.join(names)}"
        case Signed(trailer=trailer, commits=count):
            return f"adds {trailer!r} to {count} commit{'s' if count != 1 else ''}"
        case Unsigned(why=why):
            return f"a commit gets no trailer: {why}"
        case _:
            return None


def _underlined(script: bytes, spans: tuple[tuple[int, int], ...]) -> list[str]:
    """The lines that matched, with a mark under each character that did."""
    lines, at = [], 0
    for line in script.split(b"\n"):
        end = at + len(line)
        inside = [(max(a, at) - at, min(b, end) - at) for a, b in spans if a < end and b > at]
        if inside or not spans:
            lines.append(f"  {decode(line)}")
        if inside:
            lines.append(f"  {_marks(line, inside)}")
        at = end + 1
    return lines[:_MOST_LINES]


def _marks(line: bytes, spans: list[tuple[int, int]]) -> str:
    made, at = "", 0
    for character in line.decode("utf-8", "surrogateescape"):
        raw = character.encode("utf-8", "surrogateescape")
        marked = any(start <= at < stop for start, stop in spans)
        made += ("^" if marked else " ") * _width(decode(raw))
        at += len(raw)
    return made


def _width(character: str) -> int:
    """Columns on a terminal."""
    if unicodedata.combining(character):
        return 0
    shown = printable(character)
    return len(shown) + sum(unicodedata.east_asian_width(each) in "WF" for each in shown)
