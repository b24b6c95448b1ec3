"""nacre: the shell tool for language-model agents.

    import nacre

    with nacre.Tool("harness", cwd="/repo") as tool:
        reply = tool.call({"command": "make test"})

Importing this starts nothing and loads nothing; each name is loaded when it is first used.
"""

__version__ = "0.1.0"

# Not from typing, which alone costs a third of what importing us may take.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nacre.cancel import CancelToken as CancelToken
    from nacre.contracts.contract import Reply as Reply
    from nacre.events import Chunk as Chunk
    from nacre.events import Event as Event
    from nacre.events import Finished as Finished
    from nacre.events import Full as Full
    from nacre.events import Listening as Listening
    from nacre.events import Started as Started
    from nacre.events import Stream as Stream
    from nacre.handle import Page as Page
    from nacre.handle import RunHandle as RunHandle
    from nacre.oneshot import arun as arun
    from nacre.oneshot import run as run
    from nacre.outcome import Cancelled as Cancelled
    from nacre.outcome import Capture as Capture
    from nacre.outcome import Exited as Exited
    from nacre.outcome import Killed as Killed
    from nacre.outcome import Lost as Lost
    from nacre.outcome import NotStarted as NotStarted
    from nacre.outcome import Outcome as Outcome
    from nacre.outcome import Saved as Saved
    from nacre.outcome import Survivor as Survivor
    from nacre.outcome import TimedOut as TimedOut
    from nacre.plan import AtLimit as AtLimit
    from nacre.plan import Keep as Keep
    from nacre.plan import Spill as Spill
    from nacre.plan import Streams as Streams
    from nacre.plan import When as When
    from nacre.refusals import Refusal as Refusal
    from nacre.refusals import Refused as Refused
    from nacre.remembered import SessionHandle as SessionHandle
    from nacre.remembered import SessionProblem as SessionProblem
    from nacre.tool import Tool as Tool

_ROOMS = {
    "cancel": "CancelToken",
    "contracts.contract": "Reply",
    "events": "Chunk Event Finished Full Listening Started Stream",
    "handle": "Page RunHandle",
    "remembered": "SessionHandle SessionProblem",
    "oneshot": "arun run",
    "outcome": ("Cancelled Capture Exited Killed Lost NotStarted Outcome Saved Survivor TimedOut"),
    "plan": "AtLimit Keep Spill Streams When",
    "refusals": "Refusal Refused",
    "tool": "Tool",
}
_HOMES = {name: f"nacre.{room}" for room, names in _ROOMS.items() for name in names.split()}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'nacre' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
