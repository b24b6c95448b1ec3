"""`nacre run`: run one command as an agent would, and stream its output to the user."""

import argparse
import contextlib
import shlex
import signal
import sys
import threading
from typing import Any, Final

import msgspec

from nacre.contracts.phrases import leftover_lines, session_notes
from nacre.eventloop import now
from nacre.frontends.cli.common import (
    UsageError,
    cancel_on_signals,
    forward_signals,
    own_tool,
    print_line,
    print_note,
    print_problem,
    write_all,
)
from nacre.frontends.cli.exit_codes import NOT_STARTED_EXIT, exit_code
from nacre.frontends.cli.shared_arguments import add_contract_argument, add_session_argument
from nacre.model.cancel import CancelToken
from nacre.model.events import Chunk, Event, Full, Listening, Started, Stream
from nacre.model.outcome import (
    Cancelled,
    Capture,
    Exited,
    How,
    Killed,
    Lost,
    NotStarted,
    Outcome,
    SessionSaved,
    TimedOut,
    ending_state,
)
from nacre.model.refusals import CalledOff, Refused
from nacre.text.clean import decode, drop_partial_end, drop_partial_start
from nacre.tool.tool import Tool

# Seconds without output after which `nacre run` shows a line that says that the command still runs.
_QUIET: Final = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_contract_argument(parser)
    parser.usage = (
        "nacre run [--contract C] [--cwd D] [--session NAME] [--timeout S] [--json]\n"
        "                 [--detach [--interactive]] -- COMMAND ..."
    )
    add_session_argument(parser)
    parser.add_argument(
        "--cwd", metavar="D", help="directory of the command (default: the current one)"
    )
    parser.add_argument(
        "--timeout", metavar="S", help="seconds, instead of the contract's timeout; 0 is no limit"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the outcome instead of streaming the output"
    )
    parser.add_argument(
        "--detach", action="store_true", help="run in the background, and print the run id"
    )
    parser.add_argument(
        "--interactive", action="store_true", help="with --detach: keep stdin open for nacre write"
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one word is a script; several words are a program and its arguments",
    )


def main(options: argparse.Namespace) -> int:
    try:
        script = _script(options.command)
        timeout = _timeout(options.timeout)
        if options.interactive and not options.detach:
            raise UsageError("--interactive needs --detach: only a detached run can be written to")
        tool = own_tool(options.contract, cwd=options.cwd, session=options.session)
    except UsageError as error:
        print_problem(str(error))
        return 2
    if options.detach:
        return _detach(tool, script, timeout, options)
    cancel = CancelToken()
    cancel_on_signals(cancel)
    with tool, LiveOutput(cancel, streams=not options.json) as screen:
        forward_signals(lambda number: screen.run and tool.signal(screen.run, number))
        try:
            outcome = _run_command(tool, script, timeout, screen, cancel)
        except Refused as refused:
            if options.json:
                print_line(msgspec.json.encode({"ending": "refused", "why": str(refused)}).decode())
            print_problem(str(refused))
            return NOT_STARTED_EXIT
        if tool.audit_problem is not None:
            print_problem(tool.audit_problem)
    if options.json:
        print_line(msgspec.json.encode(outcome_to_json(outcome)).decode())
    else:
        _print_notes(outcome)
    if screen.problem is not None:
        print_problem(screen.problem)
        # The command was cancelled by nacre, because its output could not be written.
        if isinstance(outcome.ending, Cancelled):
            return 1
    return _exit_code(outcome) or (1 if screen.problem else 0)


def _detach(tool: Tool, script: str, timeout: float | None, options: argparse.Namespace) -> int:
    """Start a command in the background and print only its run id on stdout, as text or as JSON."""
    with tool:
        try:
            run = tool.start({"command": script}, timeout=timeout, interactive=options.interactive)
        except Refused as refused:
            print_problem(str(refused))
            return NOT_STARTED_EXIT
    if options.json:
        print_line(msgspec.json.encode({"run": run.id, "ending": None}).decode())
    else:
        print_line(run.id)
    return 0


def _script(words: list[str]) -> str:
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise UsageError("no command was given; write: nacre run -- COMMAND")
    return words[0] if len(words) == 1 else shlex.join(words)


def _timeout(given: str | None) -> float | None:
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        raise UsageError(f"--timeout {given} is not a number of seconds") from None
    if not seconds >= 0:
        raise UsageError(f"--timeout {given} is out of range; give 0 for no limit, or more")
    return seconds or float("inf")


def _run_command(
    tool: Tool, script: str, timeout: float | None, screen: "LiveOutput", cancel: CancelToken
) -> Outcome:
    # Every byte of the command's output must be printed, so the command waits while the reader of
    # nacre's stdout is slow.
    listening = Listening(listener=screen.on_event, full=Full.WAIT, linger=None)
    return tool.answer({"command": script}, timeout=timeout, listen=listening, cancel=cancel)


class LiveOutput:
    """Writer that copies a running command's output to nacre's own stdout and stderr.

    While the command prints nothing, `LiveOutput` shows a progress line on a terminal.
    """

    def __init__(self, cancel: CancelToken, *, streams: bool) -> None:
        self.run: str | None = None
        # Error message if the command's output could not be written; else None.
        self.problem: str | None = None
        self._cancel = cancel
        self._streams = streams
        self._lock = threading.Lock()
        self._began = self._heard = now()
        self._line_open = False  # whether the last printed output lacks a final newline
        self._progress = False  # whether the progress line is on the screen
        self._over = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> "LiveOutput":
        if self._streams and sys.stderr.isatty():
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._ticker is not None:
            self._ticker.join()
        # If this thread cannot acquire `_lock`, another thread is blocked in writing output and has
        # already erased the progress line.
        if self._lock.acquire(timeout=0.1):
            self._erase()
            self._lock.release()

    def on_event(self, event: Event) -> None:
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
            # After a write error on stdout or stderr, cancel the command with SIGPIPE, as in a
            # shell pipeline.
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


def _print_notes(outcome: Outcome) -> None:
    """Print on stderr what the command's output does not show, such as a timeout or processes that
    the command left running."""
    match outcome.ending:
        case TimedOut(after=after):
            print_problem(f"the command timed out after {after:g} s and was stopped")
        case NotStarted(why=why) if not isinstance(why, CalledOff):
            print_problem(str(why))
        case Lost():
            print_problem("the command ended, but its exit status was lost")
    for line in leftover_lines(outcome.left_running):
        print_note(line)
    if state := session_notes(outcome, moved=outcome.session_moved):
        print_note(f"[{state}]")


def _exit_code(outcome: Outcome) -> int:
    match outcome.ending:
        case NotStarted(why=CalledOff()):
            return 128 + signal.SIGTERM
        case ending:
            return exit_code(ending)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome of a command as the JSON object that `nacre run --json` prints."""
    fields: dict[str, Any] = {"run": outcome.run, "ending": ending_state(outcome.ending)}
    match outcome.ending:
        case NotStarted(why=why):
            fields["why"] = str(why)
        case TimedOut(how=how) | Cancelled(how=how):
            fields |= _how_to_json(how)
        case Exited() | Killed() as how:
            fields |= _how_to_json(how)
    fields["seconds"] = round(outcome.seconds, 3)
    fields["output"] = _capture_to_json(outcome.output)
    if outcome.errors is not None:
        fields["errors"] = _capture_to_json(outcome.errors)
    if outcome.session is not None:
        fields["kept"] = isinstance(outcome.session, SessionSaved)
    fields["left_running"] = [
        {"pid": survivor.pid, "command": survivor.command} for survivor in outcome.left_running
    ]
    return fields


def _how_to_json(how: How) -> dict[str, int]:
    match how:
        case Exited(code):
            return {"exit_code": code}
        case Killed(number):
            return {"exit_code": 128 + number, "signal": number}
        case None:
            return {}


def _capture_to_json(capture: Capture) -> dict[str, Any]:
    fields: dict[str, Any] = {"bytes": capture.size, "lines": capture.lines}
    if not capture.omitted:
        return fields | {"text": decode(capture.head + capture.tail)}
    return fields | {
        "head": decode(drop_partial_end(capture.head)),
        "omitted_bytes": capture.omitted,
        "tail": decode(drop_partial_start(capture.tail)),
    }
