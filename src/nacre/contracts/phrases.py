"""Texts and values that several contracts (tool dialects) share."""

from typing import Final

from nacre.model.outcome import (
    Cancelled,
    Capture,
    NotStarted,
    Outcome,
    SessionNotSaved,
    SessionSaved,
    SessionUnavailable,
    Survivor,
    TimedOut,
)
from nacre.model.plan import AtLimit, Spill
from nacre.model.refusals import BadDirectory, DirectoryProblem
from nacre.text.clean import decode

# Output that is too long for memory is stored on disk; at the size limit on disk, nacre closes the
# command's output pipe.
SPILL: Final = Spill(then=AtLimit.CLOSE)


def describe_leftover(survivor: Survivor) -> str:
    return f"[left running: {survivor.pid} {survivor.command}]"


def session_notes(outcome: Outcome) -> str | None:
    """Return a note for the model about the session's state after a command; None if no note is
    needed."""
    if isinstance(outcome.ending, NotStarted):
        return None
    match outcome.session:
        case SessionUnavailable(problem):
            return f"this command had no session, and nothing is remembered: {problem}"
        case SessionNotSaved():
            return (
                "the session is as it was before this command: it was killed, became another "
                "program, has an EXIT trap of its own, or could not be saved"
            )
        case SessionSaved() if isinstance(outcome.ending, TimedOut | Cancelled):
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


def artifact_reference(run: str, capture: Capture) -> tuple[str | None, str]:
    """Return the number of the artifact that holds a run's complete output, and the artifact's URL
    for the reply; if the output was not kept, return None and a text that says why."""
    saved, number = capture.saved, run.removeprefix("r")
    if saved is None or saved.path is None or not number.isdigit():
        problem = None if saved is None else saved.problem
        return None, f"not kept ({problem or 'there was nowhere to write it'})"
    return number, f"artifact://{number}{'' if saved.complete else f' ({saved.problem})'}"
