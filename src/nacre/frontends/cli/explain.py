"""`nacre explain`: show what nacre's checks find in a command and what they would do about it.

`nacre explain` does not run the command that it explains.
"""

import argparse
import json
import os
import sys
import unicodedata
from typing import Any, Final

from msgspec import Struct

from nacre.bash.analyze import analyze
from nacre.bash.commands import Analysis, ParsedCommand, Redirect, Word
from nacre.bash.quoting import quote
from nacre.contracts import registry
from nacre.contracts.arguments import read_script
from nacre.frontends.cli.common import (
    UsageError,
    escape_controls,
    initial_environment,
    parse_settings,
    print_line,
    print_problem,
)
from nacre.frontends.cli.shared_arguments import add_caller_arguments, add_contract_argument
from nacre.model.caller import Caller
from nacre.model.findings import (
    AnyFinding,
    CdLifted,
    NeedsTerminal,
    ToolSuggested,
    TrailerAdded,
    TrailerSkipped,
    VariablesDropped,
)
from nacre.model.refusals import Dangerous, Intercepted, Refused
from nacre.prepare.decide import Decision, decide
from nacre.prepare.git_trailers import find_commits
from nacre.prepare.interception import find_match
from nacre.prepare.interception_rules import DEFAULT_RULES
from nacre.prepare.terminal_needs import find_terminal_needs
from nacre.settings import load
from nacre.store.url_resolvers import build_resolvers
from nacre.store.workspace import find_workspace
from nacre.text.clean import decode

_MOST_LINES: Final = 40  # maximum number of lines of a script that `nacre explain` prints


class Explanation(Struct, frozen=True, kw_only=True):
    decision: Decision
    analysis: Analysis  # analysis of the command as the caller wrote it, before any change
    suggestion: ToolSuggested | None
    terminal: tuple[NeedsTerminal, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_contract_argument(parser)
    parser.add_argument("--cwd", metavar="D", help="directory (default: the current one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_caller_arguments(parser)
    parser.add_argument("command", metavar="COMMAND", help="a script, or - for stdin")


def main(options: argparse.Namespace) -> int:
    try:
        explained = explain(
            options.command,
            contract=options.contract,
            tools=[name for name in options.tools.split(",") if name],
            options=parse_settings(options.set),
            cwd=options.cwd,
        )
    except UsageError as error:
        print_problem(str(error))
        return 2
    if options.json:
        print_line(json.dumps(explanation_to_json(explained), ensure_ascii=False))
    else:
        lines = (escape_controls(line.rstrip()) for line in _lines(explained))
        print_line("\n".join(lines))
    return 0


def explain(
    command: str, *, contract: str, tools: list[str], options: dict[str, str], cwd: str | None
) -> Explanation:
    """Apply the checks of a contract (tool dialect) to a command without running the command.
    Raises UsageError."""
    try:
        here = os.path.abspath(os.fsencode(cwd or os.getcwd()))
        checks = registry.build_checks(contract, load(contract, here, options).option_values)
        script = read_script(_decode_command(command))
    except (ValueError, OSError, Refused) as error:
        raise UsageError(str(error)) from None
    place = find_workspace(here)
    caller = Caller(
        cwd=here,
        workspace=place,
        env=initial_environment(),
        tools=tuple(tools),
        resolvers=build_resolvers(place),
    )
    decision = decide(checks.plan(script, caller), checks.steps, caller)
    reading = analyze(script, home=caller.home, cwd=here)
    found = find_match(reading, getattr(checks, "rules", DEFAULT_RULES), tools)
    return Explanation(
        decision=decision,
        analysis=reading,
        suggestion=None
        if found is None
        else ToolSuggested(
            tool=found.rule.tool, message=found.rule.message, arguments=found.arguments
        ),
        terminal=tuple(find_terminal_needs(reading)),
    )


def _decode_command(command: str) -> str:
    if command != "-":
        return command
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def explanation_to_json(explained: Explanation) -> dict[str, Any]:
    decision, suggestion = explained.decision, explained.suggestion
    refusal = decision.refusal
    lifted = [each.path for each in decision.findings if isinstance(each, CdLifted)]
    return {
        "readable": explained.analysis.unreadable is None,
        "commands": [_words_to_json(each) for each in explained.analysis.commands if each.words],
        "verdict": "run" if refusal is None else "refuse",
        "rule": refusal.rule if isinstance(refusal, Dangerous | Intercepted) else None,
        "why": None if refusal is None else _why(refusal),
        "instead": _instead(refusal),
        "commits": any(find_commits(explained.analysis)),
        "cwd": decode(lifted[0]) if lifted else None,
        "script": decode(decision.plan.command.script),
        "suggestion": None
        if suggestion is None
        else {"tool": suggestion.tool, "arguments": suggestion.arguments},
        "needs_terminal": bool(explained.terminal),
    }


def _words_to_json(command: ParsedCommand) -> list[str | None]:
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


# Functions that format the result of `nacre explain` as plain text.


def _lines(explained: Explanation) -> list[str]:
    decision, reading = explained.decision, explained.analysis
    refusal = decision.refusal
    lines = []
    if refusal is None:
        lines.append("would run")
    else:
        rule = getattr(refusal, "rule", None)
        lines.append(f"would be refused, by {rule}" if rule else "would be refused")
        lines += ["", *_show_spans(decision.plan.command.script, getattr(refusal, "spans", ()))]
        lines.append(f"  {_why(refusal)}")
        instead = _instead(refusal)
        if instead is not None:
            lines.append(f"  instead: {instead}")
    if reading.unreadable is not None:
        lines += [
            "",
            f"the command cannot be parsed completely: {reading.unreadable.why}; bash reports more",
        ]
    lines += ["", "commands"]
    lines += [f"  {_show_command(each)}" for each in reading.commands if each.words] or ["  none"]
    notes = [*_notes(explained)]
    if notes:
        lines += ["", "notes", *(f"  {note}" for note in notes)]
    command = decision.plan.command
    if refusal is None and command.script != command.original:
        lines += [
            "",
            "bash would get",
            *(f"  {each}" for each in decode(command.script).split("\n")),
        ]
    return lines


def _show_command(command: ParsedCommand) -> str:
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


def _notes(explained: Explanation) -> list[str]:
    notes = [note for each in explained.decision.findings if (note := _note(each))]
    if explained.suggestion is not None:
        notes.append(f"suggestion: {explained.suggestion.message}")
    notes += [f"{each.words}: {each.why}; {each.instead}" for each in explained.terminal]
    return notes


def _note(finding: AnyFinding) -> str | None:
    match finding:
        case CdLifted(path=path):
            return f"runs in {decode(path)}, the target of its cd"
        case VariablesDropped(names=names):
            return f"does not get these variables: {', '.join(names)}"
        case TrailerAdded(trailer=trailer, commits=count):
            return f"adds {trailer!r} to {count} commit{'s' if count != 1 else ''}"
        case TrailerSkipped(why=why):
            return f"a commit gets no trailer: {why}"
        case _:
            return None


def _show_spans(script: bytes, spans: tuple[tuple[int, int], ...]) -> list[str]:
    """Return the lines of a script that the byte ranges in `spans` touch, each followed by a line
    that marks the characters in a range."""
    lines, at = [], 0
    for line in script.split(b"\n"):
        end = at + len(line)
        inside = [(max(a, at) - at, min(b, end) - at) for a, b in spans if a < end and b > at]
        if inside or not spans:
            lines.append(f"  {decode(line)}")
        if inside:
            lines.append(f"  {_underline(line, inside)}")
        at = end + 1
    return lines[:_MOST_LINES]


def _underline(line: bytes, spans: list[tuple[int, int]]) -> str:
    shown, at = "", 0
    for character in line.decode("utf-8", "surrogateescape"):
        raw = character.encode("utf-8", "surrogateescape")
        marked = any(start <= at < stop for start, stop in spans)
        shown += ("^" if marked else " ") * _width(decode(raw))
        at += len(raw)
    return shown


def _width(character: str) -> int:
    """Return the number of terminal columns that a character takes."""
    if unicodedata.combining(character):
        return 0
    shown = escape_controls(character)
    return len(shown) + sum(unicodedata.east_asian_width(each) in "WF" for each in shown)
