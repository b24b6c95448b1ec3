"""Preparation step `interception_step`: finds commands for which the agent has a better tool.

An interception rule applies only if the agent has the tool that the rule suggests. An interception
rule checks the parsed commands of a script, not the script's text. Another tool cannot replace a
command in a pipe, a substitution, a function or a loop, nor a command whose exit status the script
tests, so interception rules skip these commands. Commands that read devices or `/proc` match no
built-in interception rule for the same reason.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

from nacre.bash.commands import Analysis, ParsedCommand
from nacre.bash.paths import resolve_path
from nacre.model.caller import Caller
from nacre.model.findings import ToolSuggested
from nacre.model.plan import Plan
from nacre.model.refusals import Intercepted
from nacre.prepare.decide import add_findings
from nacre.prepare.plan_analysis import analyze_plan
from nacre.text.clean import decode

Mode = Literal["off", "warn", "block"]
Arguments = dict[str, str | int]
FindArguments = Callable[
    [ParsedCommand, bytes], Arguments | None
]  # function that returns the arguments for the suggested tool if a command matches, else None

_TOOL: Final = re.compile(r"[A-Za-z_][\w.:/-]*")
# Programs that run another command without changing its effect, such as `nice` or `timeout`.
_TRANSPARENT: Final = {
    *(b"command", b"env", b"builtin", b"exec", b"nohup", b"nice", b"ionice", b"time", b"timeout"),
    *(b"stdbuf", b"setsid", b"eval", b"bash", b"sh", b"dash"),
}


class UserRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Interception rule from the user's settings, with a regular expression for the text of a
    command, or with the first words of a command."""

    tool: str
    message: str
    pattern: str | None = None
    words: tuple[str, ...] | None = None


class InterceptionRule(Struct, frozen=True, kw_only=True):
    id: str
    tool: str
    message: str
    find_arguments: FindArguments


class Match(Struct, frozen=True, kw_only=True):
    rule: InterceptionRule
    command: ParsedCommand
    arguments: Arguments


def load_rules(given: Sequence[UserRule]) -> tuple[InterceptionRule, ...]:
    """Convert the interception rules in the user's settings to `InterceptionRule` objects. Raises
    ValueError for an invalid interception rule; the message contains the number of the rule."""
    return tuple(_load_rule(number, each) for number, each in enumerate(given, 1))


def _load_rule(number: int, given: UserRule) -> InterceptionRule:
    name = f"rule {number} (for the tool {given.tool!r})"
    if not _TOOL.fullmatch(given.tool):
        raise ValueError(f"rule {number} names {given.tool!r}, which is not a tool name; give one")
    if (given.pattern is None) == (given.words is None):
        raise ValueError(f"{name} needs either a pattern or words")
    look = (
        _first_words(given.words) if given.words is not None else _regex(name, given.pattern or "")
    )
    return InterceptionRule(
        id=f"user.{number}", tool=given.tool, message=given.message, find_arguments=look
    )


def _first_words(wanted: Sequence[str]) -> FindArguments:
    first = [each.encode() for each in wanted]

    def look(command: ParsedCommand, script: bytes) -> Arguments | None:
        del script
        texts = [command.name, *(word.text for word in command.arguments)]
        return {} if texts[: len(first)] == first else None

    return look


def _regex(name: str, pattern: str) -> FindArguments:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{name} has a pattern that does not compile ({error}): {pattern}"
        ) from None

    def look(command: ParsedCommand, script: bytes) -> Arguments | None:
        return {} if compiled.search(decode(script[command.start : command.end])) else None

    return look


def interception_step(
    rules: Sequence[InterceptionRule], mode: Mode
) -> Callable[[Plan, Caller], Plan | Intercepted]:
    def step(plan: Plan, caller: Caller) -> Plan | Intercepted:
        """Refuse a command for which the agent has a better tool; in the mode `warn`, only add a
        finding that names the better tool."""
        if mode == "off" or not caller.tools:
            return plan
        found = find_match(analyze_plan(plan, caller), rules, caller.tools)
        if found is None:
            return plan
        rule, arguments = found.rule, _resolve_paths(found.arguments, plan, caller)
        if mode == "warn":
            suggested = ToolSuggested(tool=rule.tool, message=rule.message, arguments=arguments)
            return add_findings(plan, suggested)
        command = found.command
        return Intercepted(
            rule=f"intercept.{rule.id}",
            tool=rule.tool,
            message=rule.message,
            command=decode(plan.command.original),
            matched=tuple(decode(word.text or b"?") for word in command.words),
            spans=((command.start, command.end),),
            arguments=arguments,
        )

    return step


def _resolve_paths(arguments: Arguments, plan: Plan, caller: Caller) -> Arguments:
    """Make the path argument for the suggested tool absolute if the command runs outside the
    caller's directory. The tool that an interception rule suggests runs in the caller's directory
    and does not see the command's `cd` or `cwd`."""
    path, cwd = arguments.get("path"), plan.command.cwd
    if cwd == caller.cwd or not isinstance(path, str):
        return arguments
    return {**arguments, "path": decode(resolve_path(cwd, path.encode("utf-8", "surrogateescape")))}


def find_match(
    reading: Analysis, rules: Sequence[InterceptionRule], tools: Sequence[str]
) -> Match | None:
    """Return the first match: a command that another tool of the agent does better; None without a
    match."""
    counted = [rule for rule in rules if rule.tool in tools]
    for command in reading.commands:
        if not _is_plain_command(command):
            continue
        for rule in counted:
            arguments = rule.find_arguments(command, reading.text)
            if arguments is not None:
                return Match(rule=rule, command=command, arguments=arguments)
    return None


def _is_plain_command(command: ParsedCommand) -> bool:
    alone = not (command.feeds or (command.fed and command.name != b"tee"))
    placed = not (command.substitution or command.function or command.loop or command.tested)
    return bool(command.words) and alone and placed and _TRANSPARENT.issuperset(command.via)
