"""What more than one contract has: words, mostly."""

from typing import Final

from nacre.model.outcome import Cancelled, Capture, NotStarted, Outcome, Survivor, TimedOut
from nacre.model.plan import AtLimit, Spill
from nacre.model.refusals import BadDirectory, DirectoryProblem
from nacre.text.clean import decode

# What is too much for memory is kept whole, in the store; whoever writes more than may be kept
# there finds its pipe closed.
SPILL: Final = Spill(then=AtLimit.CLOSE)


def describe_leftover(survivor: Survivor) -> str:
    return f"[left running: {survivor.pid} {survivor.command}]"


def session_notes(outcome: Outcome) -> str | None:
    """What became of the shell of its session, where one may wonder."""
    if outcome.session_saved is None or isinstance(outcome.ending, NotStarted):
        return None
    if outcome.session_problem:
        return f"this command had no session, and nothing is remembered: {outcome.session_problem}"
    if not outcome.session_saved:
        return (
            "the session is as it was before this command: it was killed, became another program, "
            "has an EXIT trap of its own, or could not be saved"
        )
    if isinstance(outcome.ending, TimedOut | Cancelled):
        return "the session is as this command has left it"
    if outcome.previous_state_lost:
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
    """Where all of an output that is too long can be read: the number, and that in words."""
    saved, number = capture.saved, run.removeprefix("r")
    if saved is None or saved.path is None or not number.isdigit():
        problem = None if saved is None else saved.problem
        return None, f"not kept ({problem or 'there was nowhere to write it'})"
    return number, f"artifact://{number}{'' if saved.complete else f' ({saved.problem})'}"
