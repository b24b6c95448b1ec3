"""Texts and values that several contracts (tool dialects) share."""

import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from nacre.model.findings import AnyFinding, SessionMoved
from nacre.model.outcome import (
    Cancelled,
    Capture,
    Ending,
    Exited,
    NotStarted,
    Outcome,
    SessionNotSaved,
    SessionResult,
    SessionSaved,
    SessionTaken,
    SessionUnavailable,
    Survivor,
    TimedOut,
)
from nacre.model.plan import AtLimit, Spill
from nacre.model.refusals import BadDirectory, DirectoryProblem
from nacre.text.clean import decode, strip_escapes

# Output that is too long for memory is stored on disk; at the size limit on disk, nacre closes the
# command's output pipe.
SPILL: Final = Spill(then=AtLimit.CLOSE)


_TAKEN: Final = (
    "the state of this command is not saved: before it ended, the session was used by a later "
    "call, reset or removed"
)
_MAX_COMMAND: Final = 80  # maximum number of characters of a command that a reply quotes
_MAX_LEFTOVERS: Final = 10  # maximum number of leftover processes that the text of a reply names


def shorten_command(command: str) -> str:
    flat = " ".join(strip_escapes(command).split())
    return flat if len(flat) <= _MAX_COMMAND else f"{flat[: _MAX_COMMAND - 1]}…"


def describe_process(survivor: Survivor) -> str:
    return f"{survivor.pid} {shorten_command(survivor.command)}"


def process_texts(
    label: str,
    survivors: Sequence[Survivor],
    describe: Callable[[Survivor], str] = describe_process,
) -> list[str]:
    """Return one text for each process; a long list of processes ends with the number of processes
    that it leaves out."""
    texts = [f"{label}: {describe(each)}" for each in survivors[:_MAX_LEFTOVERS]]
    more = len(survivors) - len(texts)
    return [*texts, f"{label}: and {more} more"] if more else texts


def leftover_lines(survivors: Sequence[Survivor]) -> list[str]:
    return [f"[{each}]" for each in process_texts("left running", survivors)]


class SessionReport(Protocol):
    """What an `Outcome` and a `RunStatus` say about the session of a run."""

    @property
    def ending(self) -> Ending | None: ...
    @property
    def session(self) -> SessionResult | None: ...
    @property
    def session_errexit(self) -> bool: ...
    @property
    def session_taken_from(self) -> str: ...


def session_notes(
    run: SessionReport, script: bytes = b"", moved: tuple[bytes, bytes] | None = None
) -> str | None:
    """Return a note for the model about the session's directory and its state after a command; None
    if no note is needed. `script` is the script of the command, as far as it is known. `moved` is
    as `Outcome.session_moved`."""
    earlier = run.session_taken_from
    notes = [
        moved_note(*moved) if moved else None,
        _state_note(run, script),
        _ERREXIT if run.session_errexit else None,
        f"the session keeps the state of this call; the state of {earlier} is not saved"
        if earlier and isinstance(run.session, SessionSaved)
        else None,
    ]
    return "; ".join(each for each in notes if each) or None


def moved_note(before: bytes, now: bytes) -> str:
    """Return a note for the model about a session whose directory cannot be entered."""
    return (
        f"the session's directory {decode(before)} cannot be entered; this call starts from "
        f"{decode(now)}"
    )


def moved_notes(findings: Sequence[AnyFinding]) -> list[str]:
    return [
        moved_note(each.before, each.now) for each in findings if isinstance(each, SessionMoved)
    ]


# Why a command that was not killed has not saved the state of its shell, by what its script has.
_CAUSES: Final = (
    (
        re.compile(rb"\btrap\b[^\n]{0,200}\b(?:EXIT|0)\b"),
        "its EXIT trap replaced the trap that saves the session",
    ),
    (re.compile(rb"\bexec\b"), "it became another program (exec)"),
    (
        re.compile(rb"\b(?:source|eval)\b|(?:^|[\s;&|({])\.\s"),
        "an EXIT trap in code that it sourced or evaluated replaced the trap that saves the "
        "session",
    ),
)
_ERREXIT: Final = (
    "set -e is on in this session: a command that fails ends the whole call; set +e turns it off"
)


def _unsaved_cause(run: SessionReport, script: bytes) -> str:
    if not isinstance(run.ending, Exited):
        return "it was killed"
    return next((why for each, why in _CAUSES if each.search(script)), "it could not be saved")


def _state_note(run: SessionReport, script: bytes) -> str | None:
    if isinstance(run.ending, NotStarted):
        return None
    match run.session:
        case SessionUnavailable(problem):
            return f"this command had no session, and nothing is remembered: {problem}"
        case SessionNotSaved():
            cause = _unsaved_cause(run, script)
            return f"the session is as it was before this command: {cause}"
        case SessionTaken():
            return _TAKEN
        case SessionSaved() if isinstance(run.ending, TimedOut | Cancelled):
            return "the session is as this command has left it"
        case SessionSaved(previous_state_lost=True):
            return "what the command before this one did to its shell could not be remembered"
    return None


_DIRECTORY: Final = {
    DirectoryProblem.MISSING: "Working directory does not exist: {}",
    DirectoryProblem.NOT_A_DIRECTORY: "Working directory is not a directory: {}",
    DirectoryProblem.FORBIDDEN: "Working directory cannot be entered: {} (permission denied)",
}


def bad_directory_text(refusal: BadDirectory) -> str:
    return _DIRECTORY[refusal.problem].format(decode(refusal.path))


def incomplete_note(capture: Capture) -> list[str]:
    """Return a list with a note that a part of the output was lost; an empty list if the output is
    complete."""
    problem = None if capture.saved is None else capture.saved.problem
    return [] if problem is None else [f"[output incomplete: {problem}]"]


def artifact_reference(outcome: Outcome) -> tuple[str | None, str]:
    """Return the number of the artifact that holds a run's complete output, and the artifact's URL
    for the reply; if the output was not kept, return None and a text that says why."""
    saved, number = outcome.output.saved, outcome.run.removeprefix("r")
    if saved is None and outcome.stored:
        return number, f"artifact://{number}"
    if saved is None or saved.path is None or not number.isdigit():
        problem = None if saved is None else saved.problem
        return None, f"not kept ({problem or 'there was nowhere to write it'})"
    return number, f"artifact://{number}{'' if saved.complete else f' ({saved.problem})'}"
