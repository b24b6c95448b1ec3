"""Habits of models from other shell tools, translated to the arguments of the `nacre` contract.

A model that knows other shell tools sends their argument names, such as `cmd` or `timeout_ms`. A
name that can mean only one thing is translated, and the reply has a note with the right name. All
other unknown names are refused by `contracts.arguments`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from nacre.contracts.arguments import is_absent

# A rule takes the value that the model sent, and returns the argument that is meant with its value,
# or None if the value does not fit.
Rule = Callable[[Any], tuple[str, Any] | None]


def _rename(name: str) -> Rule:
    return lambda value: (name, value)


def _milliseconds(value: Any) -> tuple[str, Any] | None:
    try:
        return "timeout", float(value) / 1000
    except (TypeError, ValueError, OverflowError):
        return None


def _background(value: Any) -> tuple[str, Any] | None:
    if value in (True, "true"):
        return "wait", 0
    return ("", None) if value in (False, "false") else None


def _ignore(value: Any) -> tuple[str, Any]:
    del value
    return "", None


_BASH_HABITS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("cmd", "script", "commandLine", "command_line"), _rename("command")),
    **dict.fromkeys(
        ("workdir", "working_directory", "workingDirectory", "dir", "directory", "path"),
        _rename("cwd"),
    ),
    **dict.fromkeys(("timeout_ms", "timeoutMs", "timeout_millis"), _milliseconds),
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
_JOB_HABITS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(
        ("id", "run_id", "runId", "job", "job_id", "jobId", "bash_id", "shell_id"), _rename("run")
    ),
    **dict.fromkeys(("ids", "run_ids", "jobs"), _rename("runs")),
    **dict.fromkeys(("input", "data", "chars", "stdin"), _rename("text")),
    **dict.fromkeys(("filter", "pattern", "regex"), _rename("grep")),
    "tail": _rename("lines"),
    **dict.fromkeys(("timeout", "timeout_seconds"), _rename("wait")),
    **dict.fromkeys(("description", "explanation", "justification"), _ignore),
}
_ACTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("kill", "stop", "end", "cancel", "terminate"), "signal"),
    **dict.fromkeys(("poll", "join", "status"), "wait"),
    **dict.fromkeys(("send", "input", "stdin", "send_input"), "write"),
    **dict.fromkeys(("output", "log", "logs", "tail", "cat", "grep"), "read"),
    **dict.fromkeys(("ps", "jobs", "runs"), "list"),
    "session": "sessions",
}
# Actions of other tools that return at once.
_AT_ONCE: Final = ("poll", "status")


def translate_bash(arguments: object) -> tuple[object, tuple[str, ...]]:
    """Return the arguments of the tool `bash` with translated names, and a note for each
    translation."""
    if not isinstance(arguments, Mapping):
        return arguments, ()
    given, notes = _translate(arguments, _BASH_HABITS)
    return _move_into_until(given, notes)


def translate_job(arguments: object) -> tuple[object, tuple[str, ...]]:
    """Return the arguments of the tool `job` with translated names and actions, and a note for each
    translation."""
    if not isinstance(arguments, Mapping):
        return arguments, ()
    given, notes = _translate(arguments, _JOB_HABITS)
    action = given.get("action")
    meant = _ACTIONS.get(action) if isinstance(action, str) else None
    if action == "status" and is_absent(given.get("run")) and is_absent(given.get("runs")):
        meant = "list"
    if meant is not None:
        given["action"] = meant
        notes += (f"the action {action} is named {meant}",)
        if action in _AT_ONCE and meant == "wait" and is_absent(given.get("wait")):
            given["wait"] = 0
    return given, notes


def _translate(
    arguments: Mapping[Any, Any], habits: Mapping[str, Rule]
) -> tuple[dict[Any, Any], tuple[str, ...]]:
    if habits.keys().isdisjoint(arguments):
        return dict(arguments), ()
    given: dict[Any, Any] = {}
    translated: dict[str, Any] = {}
    notes = []
    for name, value in arguments.items():
        rule = habits.get(name)
        meant = None if rule is None else rule(value)
        if meant is None or (meant[0] in arguments and not is_absent(arguments[meant[0]])):
            given[name] = value
        elif meant[0]:
            translated[meant[0]] = meant[1]
            notes.append(_note(name, *meant))
    # A translated argument replaces an absent one, such as `cwd: null` beside `workdir`.
    return {**given, **translated}, tuple(notes)


def _note(name: str, meant: str, value: Any) -> str:
    if meant == "wait":
        return f"{name} is named wait: 0"
    if meant == "timeout" and name.lower().replace("_", "").startswith("timeoutm"):
        return f"{name} is named timeout, in seconds: {value:g}"
    return f"{name} is named {meant}"


def _move_into_until(
    given: dict[Any, Any], notes: tuple[str, ...]
) -> tuple[dict[Any, Any], tuple[str, ...]]:
    """Move the arguments `all` and `then`, which belong to `until`, into `until`."""
    moved = {name: given[name] for name in ("all", "then") if name in given}
    until = given.get("until")
    if not moved or is_absent(until):
        return given, notes
    listed = until if isinstance(until, list | tuple) else [until]
    rest = {name: value for name, value in given.items() if name not in moved}
    return {**rest, "until": [*listed, moved]}, notes
