"""What more than one contract has: words, mostly."""

from typing import Final

from nacre.outcome import Capture, Survivor
from nacre.plan import AtLimit, Spill
from nacre.refusals import BadDirectory, DirectoryProblem
from nacre.text import decode

# What is too much for memory is kept whole, in the store; whoever writes more than may be kept
# there finds its pipe closed.
SPILL: Final = Spill(then=AtLimit.CLOSE)


def left_running(survivor: Survivor) -> str:
    return f"[left running: {survivor.pid} {survivor.command}]"


_DIRECTORY: Final = {
    DirectoryProblem.MISSING: "Working directory does not exist: {}",
    DirectoryProblem.NOT_A_DIRECTORY: "Working directory is not a directory: {}",
    DirectoryProblem.FORBIDDEN: "Working directory cannot be entered: {} (permission denied)",
}


def bad_directory(refusal: BadDirectory) -> str:
    return _DIRECTORY[refusal.problem].format(decode(refusal.path))


def artifact(run: str, capture: Capture) -> tuple[str | None, str]:
    """Where all of an output that is too long can be read: the number, and that in words."""
    saved, number = capture.saved, run.removeprefix("r")
    if saved is None or saved.path is None or not number.isdigit():
        problem = None if saved is None else saved.problem
        return None, f"not kept ({problem or 'there was nowhere to write it'})"
    return number, f"artifact://{number}{'' if saved.complete else f' ({saved.problem})'}"
