"""Argument names and actions of other shell tools, as aliases for those of the `nacre` contract.

A model that knows other shell tools sends their argument names, such as `cmd` or `timeout_ms`. A
name that can mean only one thing is translated, and the reply has a note with the right name. A
name that cannot be translated, for example because the right name is given too, is refused with the
right name. Names that this module does not know are refused by `contracts.arguments`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from nacre.contracts.arguments import (
    adapt_switch,
    bad_arguments,
    convert_number,
    is_absent,
)

# A rule takes the value that the model sent, and returns the name and the value of the argument
# that is meant. An empty name means that the argument is ignored. A rule raises ValueError, with
# the argument that the model should give instead, if the value does not fit.
Rule = Callable[[Any], tuple[str, Any]]


def _rename(name: str) -> Rule:
    return lambda value: (name, value)


def _in_seconds(name: str) -> Rule:
    """Return the rule for a number of milliseconds that is named `name` in seconds."""

    def convert(value: Any) -> tuple[str, Any]:
        try:
            return name, convert_number(value) / 1000
        except ValueError:
            raise ValueError(f"{name}, a number of seconds") from None

    return convert


def _background(value: Any) -> tuple[str, Any]:
    given = adapt_switch(value)
    if given is True:
        return "wait", 0
    if given is False:
        return "", None
    raise ValueError("wait: 0 to start a command in the background")


def _tokens(value: Any) -> tuple[str, Any]:
    try:
        return "max_output", min(round(convert_number(value)) * _BYTES_PER_TOKEN, _MAX_OUTPUT)
    except ValueError:
        raise ValueError("max_output, a number of bytes") from None


def _terminal(value: Any) -> tuple[str, Any]:
    return ("", None) if adapt_switch(value) is False else ("pty", value)


def _restart(value: Any) -> tuple[str, Any]:
    if adapt_switch(value) is False:
        return "", None
    raise ValueError("reset to the action sessions of the tool job")


def _refer_to_job(value: Any) -> tuple[str, Any]:
    del value
    raise ValueError("it to the tool job, which works with runs")


def _ignore(value: Any) -> tuple[str, Any]:
    del value
    return "", None


_BYTES_PER_TOKEN: Final = 4
_MAX_OUTPUT: Final = 200_000  # maximum of the argument `max_output`
# Timeouts that look like milliseconds: multiples of 1000 from this number on.
_LIKE_MILLISECONDS: Final = 2000
_LONGEST: Final = 86_400  # maximum timeout in seconds; a longer one is refused
_MILLISECONDS: Final = ("timeout_ms", "timeoutMs", "timeout_millis", "yield_time_ms")
_BASH_ALIASES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("cmd", "script", "commandLine", "command_line"), _rename("command")),
    **dict.fromkeys(
        (
            *("workdir", "working_dir", "workingDir", "working_directory", "workingDirectory"),
            *("dir", "directory", "path"),
        ),
        _rename("cwd"),
    ),
    **dict.fromkeys(_MILLISECONDS, _in_seconds("timeout")),
    "yield_time_ms": _in_seconds("wait"),
    "max_output_tokens": _tokens,
    "tty": _terminal,
    "restart": _restart,
    **dict.fromkeys(("action", "run", "runs", "run_id", "bash_id", "job_id"), _refer_to_job),
    **dict.fromkeys(("timeout_seconds", "timeoutSeconds", "timeout_sec"), _rename("timeout")),
    **dict.fromkeys(
        ("run_in_background", "background", "is_background", "isBackground", "detach", "async"),
        _background,
    ),
    **dict.fromkeys(("environment", "env_vars"), _rename("env")),
    **dict.fromkeys(("session_id", "sessionId"), _rename("session")),
    "input": _rename("stdin"),
    **dict.fromkeys(("description", "explanation", "justification"), _ignore),
}
_JOB_ALIASES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(
        (
            *("id", "run_id", "runId", "job", "job_id", "jobId", "bash_id", "shell_id"),
            *("session_id", "sessionId"),
        ),
        _rename("run"),
    ),
    **dict.fromkeys(("ids", "run_ids", "jobs"), _rename("runs")),
    **dict.fromkeys(("input", "data", "chars", "stdin"), _rename("text")),
    **dict.fromkeys(("filter", "pattern", "regex"), _rename("grep")),
    "tail": _rename("lines"),
    **dict.fromkeys(("timeout", "timeout_seconds"), _rename("wait")),
    **dict.fromkeys(_MILLISECONDS, _in_seconds("wait")),
    "max_output_tokens": _tokens,
    **dict.fromkeys(("description", "explanation", "justification"), _ignore),
}
_ACTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("kill", "stop", "end", "cancel", "terminate", "interrupt"), "signal"),
    **dict.fromkeys(("poll", "join", "status", "await"), "wait"),
    **dict.fromkeys(("send", "input", "stdin", "send_input", "write_stdin"), "write"),
    **dict.fromkeys(
        ("output", "log", "logs", "tail", "cat", "grep", "read_output", "get_output"), "read"
    ),
    **dict.fromkeys(("ps", "jobs", "runs", "list_runs", "list_jobs"), "list"),
    "session": "sessions",
}
# Arguments that some actions of other tools imply, unless the call gives others.
_IMPLIED: Final[Mapping[str, tuple[str, Any]]] = {
    **dict.fromkeys(("poll", "status"), ("wait", 0)),
    "interrupt": ("signal", "INT"),
    "tail": ("lines", 20),
}
_ONE_RUN: Final = ("read", "write")  # actions that take one run
_READ_PARTS: Final = ("since", "lines", "from", "to", "grep")


def translate_bash(arguments: object) -> tuple[object, tuple[str, ...]]:
    """Return the arguments of the tool `bash` with translated names, and a note for each
    translation. Raises Refused."""
    if not isinstance(arguments, Mapping):
        return arguments, ()
    given, notes = _translate(arguments, _BASH_ALIASES)
    timeout = _read_number(given.get("timeout"))
    if looks_like_milliseconds(timeout):
        notes += (f"timeout is in seconds: {timeout:g} seconds are {timeout / 3600:.1f} hours",)
    return _move_into_until(given, notes)


def looks_like_milliseconds(timeout: float) -> bool:
    """Return whether a timeout in seconds looks as if the model meant milliseconds."""
    return _LIKE_MILLISECONDS <= timeout <= _LONGEST and timeout % 1000 == 0


def _read_number(value: Any) -> float:
    try:
        return convert_number(value)
    except ValueError:
        return 0.0


def translate_job(arguments: object) -> tuple[object, tuple[str, ...]]:
    """Return the arguments of the tool `job` with translated names and actions, and a note for each
    translation. Raises Refused."""
    if not isinstance(arguments, Mapping):
        return arguments, ()
    given, notes = _translate(arguments, _JOB_ALIASES)
    action = given.get("action")
    if isinstance(action, str):
        action = given["action"] = action.strip().lower()
    meant = _ACTIONS.get(action) if isinstance(action, str) else None
    if action == "status" and is_absent(given.get("run")) and is_absent(given.get("runs")):
        meant = "list"
    if meant is not None:
        given["action"] = meant
        name, value = _IMPLIED.get(str(action), ("", None))
        others = _READ_PARTS if name == "lines" else (name,)
        if name and meant != "list" and all(is_absent(given.get(each)) for each in others):
            given[name] = value
            meant += f" with {name}: {value}"
        elif action == "grep" and is_absent(given.get("grep")):
            raise bad_arguments("give grep, a regular expression, with action read")
        notes += (f"use action {meant}, not action {action}",)
    return given, notes + _arrange_ids(given)


def _arrange_ids(given: dict[Any, Any]) -> tuple[str, ...]:
    """Put one id into `run`, and several ids, given as a list in `run` or as text in `runs`, into
    the list `runs`; return the notes about it."""
    run, runs = given.get("run"), given.get("runs")
    if isinstance(run, list | tuple) and run and is_absent(runs):
        if len(run) == 1:
            given["run"] = run[0]
            return ()
        given["runs"] = [*run]
        del given["run"]
        return ("use runs, not run, for several ids",)
    if isinstance(runs, list | tuple) and len(runs) == 1 and given.get("action") in _ONE_RUN:
        if is_absent(run):
            given["run"] = runs[0]
            del given["runs"]
        return ()
    if isinstance(runs, str) and runs.strip():
        given["runs"] = runs.replace(",", " ").split()
        return ("runs is a list of ids",)
    return ()


def _translate(
    arguments: Mapping[Any, Any], aliases: Mapping[str, Rule]
) -> tuple[dict[Any, Any], tuple[str, ...]]:
    if aliases.keys().isdisjoint(arguments):
        return dict(arguments), ()
    given: dict[Any, Any] = {}
    translated: dict[str, Any] = {}
    notes = []
    for name, value in arguments.items():
        rule = aliases.get(name)
        if rule is None:
            given[name] = value
            continue
        if is_absent(value):
            continue
        try:
            meant, adapted = rule(value)
        except ValueError as instead:
            raise bad_arguments(f"there is no argument {name}; give {instead}") from None
        if _agrees(arguments.get(meant), adapted):
            continue
        if meant in translated or not is_absent(arguments.get(meant)):
            raise bad_arguments(f"{name} means {meant}, and the call has both; give only {meant}")
        if meant:
            translated[meant] = adapted
            notes.append(_note(name, meant, adapted))
    # A translated argument replaces an absent one, such as `cwd: null` beside `workdir`.
    return {**given, **translated}, tuple(notes)


def _agrees(given: Any, translated: Any) -> bool:
    """Return whether an argument has the value that another argument is translated to."""
    return not is_absent(given) and (
        given == translated
        or (isinstance(translated, int | float) and _read_number(given) == translated != 0)
        or (translated == 0 and given in ("0", "0.0"))
    )


def _note(name: str, meant: str, value: Any) -> str:
    if name in _MILLISECONDS:
        return f"use {meant}: {value:g} (seconds), not {name}"
    if meant == "max_output":
        return f"use {meant}: {value} (bytes), not {name}"
    return f"use {meant}{': 0' if value == 0 else ''}, not {name}"


def _move_into_until(
    given: dict[Any, Any], notes: tuple[str, ...]
) -> tuple[dict[Any, Any], tuple[str, ...]]:
    """Move the arguments `all` and `then`, which belong to `until`, into `until`."""
    moved = {name: given[name] for name in ("all", "then") if name in given}
    if not moved:
        return given, notes
    rest = {name: value for name, value in given.items() if name not in moved}
    moved = {name: value for name, value in moved.items() if not is_absent(value)}
    until = given.get("until")
    if is_absent(until):
        if any(adapt_switch(value) not in (False, "return") for value in moved.values()):
            raise bad_arguments("all and then are parts of until; give until, or leave them out")
        return rest, notes
    listed = until if isinstance(until, list | tuple) else [until]
    return {**rest, "until": [*listed, moved]}, notes
