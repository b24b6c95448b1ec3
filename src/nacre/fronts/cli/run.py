"""`nacre run`: one command as an agent would run it, for a person to watch."""

import argparse
import contextlib
import shlex
import signal
import sys
import threading
from typing import Any, Final

import msgspec

from nacre.cancel import CancelToken
from nacre.contracts.words import remembered
from nacre.events import Chunk, Event, Full, Listening, Started, Stream
from nacre.fronts.cli.common import (
    UsageError,
    cancel_on_signals,
    complain,
    own_tool,
    pass_on_signals,
    remark,
    show,
    write_all,
)
from nacre.loop import now
from nacre.outcome import (
    Cancelled,
    Capture,
    Exited,
    How,
    Killed,
    Lost,
    NotStarted,
    Outcome,
    TimedOut,
    state_of,
)
from nacre.refusals import CalledOff, Refused
from nacre.text import decode, without_cut_end, without_cut_start
from nacre.tool import Tool

TIMED_OUT: Final = 124
NOT_STARTED: Final = 125
# A command that is silent so long gets a line that says it still runs.
_QUIET: Final = 3.0


def main(options: argparse.Namespace) -> int:
    try:
        script = _script(options.command)
        timeout = _timeout(options.timeout)
        if options.interactive and not options.detach:
            raise UsageError("--interactive goes with --detach; without it, nobody could write")
        tool = own_tool(options.contract, cwd=options.cwd, session=options.session)
    except UsageError as error:
        complain(str(error))
        return 2
    if options.detach:
        return _detach(tool, script, timeout, options)
    cancel = CancelToken()
    cancel_on_signals(cancel)
    with tool, Screen(cancel, streams=not options.json) as screen:
        pass_on_signals(lambda number: screen.run and tool.signal(screen.run, number))
        try:
            outcome = _answer(tool, script, timeout, screen, cancel)
        except Refused as refused:
            if options.json:
                show(msgspec.json.encode({"ending": "refused", "why": str(refused)}).decode())
            complain(str(refused))
            return NOT_STARTED
        if tool.audit_problem is not None:
            complain(tool.audit_problem)
    if options.json:
        show(msgspec.json.encode(as_json(outcome)).decode())
    else:
        _remark(outcome)
    if screen.problem is not None:
        complain(screen.problem)
        if isinstance(outcome.ending, Cancelled):  # by us, where it had not ended by itself before
            return 1
    return _exit_code(outcome) or (1 if screen.problem else 0)


def _detach(tool: Tool, script: str, timeout: float | None, options: argparse.Namespace) -> int:
    """The name of the run on stdout, and nothing else."""
    with tool:
        try:
            run = tool.start({"command": script}, timeout=timeout, interactive=options.interactive)
        except Refused as refused:
            complain(str(refused))
            return NOT_STARTED
    if options.json:
        show(msgspec.json.encode({"run": run.id, "ending": None}).decode())
    else:
        show(run.id)
    return 0


def _script(words: list[str]) -> str:
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise UsageError("what shall run? Write: nacre run -- COMMAND")
    return words[0] if len(words) == 1 else shlex.join(words)


def _timeout(given: str | None) -> float | None:
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        raise UsageError(f"--timeout {given} is not a number of seconds") from None
    if not seconds >= 0:
        raise UsageError(f"--timeout {given} cannot be; it is 0 for no limit, or more")
    return seconds or float("inf")


def _answer(
    tool: Tool, script: str, timeout: float | None, screen: "Screen", cancel: CancelToken
) -> Outcome:
    # Every byte must reach our stdout, however slow its reader is: the command waits.
    listening = Listening(listener=screen.hear, full=Full.WAIT, linger=None)
    return tool.answer({"command": script}, timeout=timeout, listen=listening, cancel=cancel)


class Screen:
    """Where the output goes; on a terminal also a line while the command is silent."""

    def __init__(self, cancel: CancelToken, *, streams: bool) -> None:
        self.run: str | None = None
        self.problem: str | None = None  # why the output could not be shown
        self._cancel = cancel
        self._streams = streams
        self._lock = threading.Lock()
        self._began = self._heard = now()
        self._line_open = False  # the output stands in the middle of a line
        self._progress = False  # our own line is on the screen
        self._over = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> "Screen":
        if self._streams and sys.stderr.isatty():
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._ticker is not None:
            self._ticker.join()
        # A writer that is stuck holds the lock; then there is nothing to erase.
        if self._lock.acquire(timeout=0.1):
            self._erase()
            self._lock.release()

    def hear(self, event: Event) -> None:
        match event:
            case Started():
                self.run = event.run
            case Chunk() if self._streams:
                with self._lock:
                    self._show(event)

    def _show(self, chunk: Chunk) -> None:
        self._erase()
        self._heard = now()
        self._line_open = not chunk.data.endswith(b"\n")
        try:
            write_all(1 if chunk.stream is Stream.OUTPUT else 2, chunk.data)
        except OSError as error:
            # Nobody reads us any more: the command ends as it would in a pipeline.
            self._streams = False
            if not isinstance(error, BrokenPipeError):
                self.problem = f"cannot write the output: {error.strerror}"
            self._cancel.cancel(signal.SIGPIPE)

    def _tick(self) -> None:
        while not self._over.wait(1.0):
            silent = now() - self._heard
            with self._lock, contextlib.suppress(OSError):
                if silent >= _QUIET and not self._line_open:
                    self._erase()
                    self._progress = True
                    lasts = now() - self._began
                    write_all(2, f"[{lasts:.0f}s, still running; Ctrl-C stops it]".encode())

    def _erase(self) -> None:
        if self._progress:
            self._progress = False
            with contextlib.suppress(OSError):
                write_all(2, b"\r\x1b[K")


def _remark(outcome: Outcome) -> None:
    """What the output does not say, on stderr."""
    match outcome.ending:
        case TimedOut(after=after):
            complain(f"the command timed out after {after:g} s and was stopped")
        case NotStarted(why=why) if not isinstance(why, CalledOff):
            complain(str(why))
        case Lost():
            complain("the command ended, but its exit status was lost")
    for survivor in outcome.left_running:
        remark(f"[left running: {survivor.pid} {survivor.command}]")
    if state := remembered(outcome):
        remark(f"[{state}]")


def _exit_code(outcome: Outcome) -> int:
    match outcome.ending:
        case TimedOut():
            return TIMED_OUT
        case NotStarted(why=CalledOff()):
            return 128 + signal.SIGTERM
        case NotStarted() | Lost():
            return NOT_STARTED
        case _:
            return 128 + signal.SIGKILL if outcome.exit_code is None else outcome.exit_code


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as `--json` prints it."""
    said: dict[str, Any] = {"run": outcome.run, "ending": state_of(outcome.ending)}
    match outcome.ending:
        case NotStarted(why=why):
            said["why"] = str(why)
        case TimedOut(how=how) | Cancelled(how=how):
            said |= _how(how)
        case Exited() | Killed() as how:
            said |= _how(how)
    said["seconds"] = round(outcome.seconds, 3)
    said["output"] = _captured(outcome.output)
    if outcome.errors is not None:
        said["errors"] = _captured(outcome.errors)
    if outcome.kept is not None:
        said["kept"] = outcome.kept  # whether its session knows what it did
    said["left_running"] = [
        {"pid": survivor.pid, "command": survivor.command} for survivor in outcome.left_running
    ]
    return said


def _how(how: How) -> dict[str, int]:
    match how:
        case Exited(code):
            return {"exit_code": code}
        case Killed(number):
            return {"exit_code": 128 + number, "signal": number}
        case None:
            return {}


def _captured(capture: Capture) -> dict[str, Any]:
    said: dict[str, Any] = {"bytes": capture.size, "lines": capture.lines}
    if not capture.omitted:
        return said | {"text": decode(capture.head + capture.tail)}
    return said | {
        "head": decode(without_cut_end(capture.head)),
        "omitted_bytes": capture.omitted,
        "tail": decode(without_cut_start(capture.tail)),
    }
