"""nacre: the shell tool for language-model agents.

    import nacre

    with nacre.Tool("harness", cwd="/repo") as tool:
        reply = tool.call({"command": "make test"})

Importing `nacre` starts no process or thread and loads no submodule; each public name is loaded on
first use.
"""

__version__ = "0.1.0"

# `TYPE_CHECKING` is not imported from `typing`, because importing `typing` alone takes a third of
# the time budget of `import nacre`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nacre.api import arun as arun
    from nacre.api import run as run
    from nacre.contracts.contract import Reply as Reply
    from nacre.model.cancel import CancelToken as CancelToken
    from nacre.model.events import Chunk as Chunk
    from nacre.model.events import Event as Event
    from nacre.model.events import Finished as Finished
    from nacre.model.events import Full as Full
    from nacre.model.events import Listening as Listening
    from nacre.model.events import Started as Started
    from nacre.model.events import Stream as Stream
    from nacre.model.outcome import Cancelled as Cancelled
    from nacre.model.outcome import Capture as Capture
    from nacre.model.outcome import Exited as Exited
    from nacre.model.outcome import Killed as Killed
    from nacre.model.outcome import Lost as Lost
    from nacre.model.outcome import NotStarted as NotStarted
    from nacre.model.outcome import Outcome as Outcome
    from nacre.model.outcome import Saved as Saved
    from nacre.model.outcome import Survivor as Survivor
    from nacre.model.outcome import TimedOut as TimedOut
    from nacre.model.plan import AtLimit as AtLimit
    from nacre.model.plan import Keep as Keep
    from nacre.model.plan import Spill as Spill
    from nacre.model.plan import Streams as Streams
    from nacre.model.plan import When as When
    from nacre.model.refusals import Refusal as Refusal
    from nacre.model.refusals import Refused as Refused
    from nacre.runs.handle import Page as Page
    from nacre.runs.handle import RunHandle as RunHandle
    from nacre.sessions.handle import SessionHandle as SessionHandle
    from nacre.sessions.handle import SessionProblem as SessionProblem
    from nacre.tool.tool import Tool as Tool

_PUBLIC = {
    "api": "arun run",
    "contracts.contract": "Reply",
    "model.cancel": "CancelToken",
    "model.events": "Chunk Event Finished Full Listening Started Stream",
    "model.outcome": "Cancelled Capture Exited Killed Lost NotStarted Outcome Saved Survivor "
    "TimedOut",
    "model.plan": "AtLimit Keep Spill Streams When",
    "model.refusals": "Refusal Refused",
    "runs.handle": "Page RunHandle",
    "sessions.handle": "SessionHandle SessionProblem",
    "tool.tool": "Tool",
}
_MODULES = {name: f"nacre.{module}" for module, names in _PUBLIC.items() for name in names.split()}

__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'nacre' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
