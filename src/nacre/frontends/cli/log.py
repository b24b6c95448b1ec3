"""`nacre log`: print the last lines of the audit log, and optionally follow new lines."""

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from nacre.frontends.cli.common import escape_controls, print_line, print_problem
from nacre.frontends.cli.run_formatting import short_path
from nacre.frontends.cli.shared_arguments import lines
from nacre.store.append_file import KEPT_ROTATIONS
from nacre.store.audit_log import FILE_NAME
from nacre.store.state_dir import state_dir
from nacre.text.clean import human_size

_PAUSE = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--follow", "-f", action="store_true", help="also print what follows, live")
    parser.add_argument(
        "--lines", "-n", type=lines, default=50, metavar="N", help="the last N lines (default 50)"
    )
    parser.add_argument("--json", action="store_true", help="print the JSON lines unchanged")


def main(options: argparse.Namespace) -> int:
    try:
        path = f"{state_dir()}/{FILE_NAME}"
        follower = _Follower(path)
        for line in deque(follower.read_existing(), maxlen=options.lines):
            _show(line, options)
        while options.follow:
            time.sleep(_PAUSE)
            for line in follower.read_new():
                _show(line, options)
    except BrokenPipeError:
        raise
    except OSError as error:
        print_problem(f"{error.filename or 'the log'} cannot be read: {error.strerror or error}")
        return 1
    return 0


class _Follower:
    """Reader of the audit log that also follows new lines across a log rotation."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode: int | None = None
        self._at = 0
        self._rest = b""

    def read_existing(self) -> Iterator[bytes]:
        """Yield all existing lines of the audit log, oldest first."""
        for number in range(KEPT_ROTATIONS, 0, -1):
            yield from _lines(f"{self._path}.{number}")
        yield from self.read_new()

    def read_new(self) -> Iterator[bytes]:
        """Yield the lines that were added to the audit log since the last call of `read_new`."""
        try:
            with open(self._path, "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    if self._inode is not None:
                        yield from self._remainder()
                    self._inode, self._at, self._rest = inode, 0, b""
                file.seek(self._at)
                yield from self._split_lines(file.read())
        except FileNotFoundError:
            return

    def _remainder(self) -> Iterator[bytes]:
        """Yield the lines that were added to the previous audit log file right before its
        rotation."""
        try:
            with open(f"{self._path}.1", "rb") as file:
                if os.fstat(file.fileno()).st_ino == self._inode:
                    file.seek(self._at)
                    yield from self._split_lines(file.read())
        except FileNotFoundError:
            return

    def _split_lines(self, data: bytes) -> list[bytes]:
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


def _lines(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from (line.rstrip(b"\n") for line in file)
    except FileNotFoundError:
        return


def _show(line: bytes, options: argparse.Namespace) -> None:
    if not line:
        return
    if options.json:
        print_line(line.decode("utf-8", "replace"))
        return
    try:
        print_line(_format_line(json.loads(line)))
    except (ValueError, LookupError, AttributeError, TypeError):
        shown = escape_controls(line[:60].decode("utf-8", "replace"))
        print_line(f"(a line that cannot be read: {shown}…)")


def _format_line(entry: dict[str, Any]) -> str:
    """Return a log entry as one line of text, for example:

    `10:15:02  phoenix  r17   exit 0    0.02s   1.2KB  make test   (~/repo)`
    """
    moment = datetime.fromisoformat(entry["time"]).astimezone()
    when = (
        f"{moment:%H:%M:%S}" if moment.date() == datetime.now().date() else f"{moment:%d %b %H:%M}"
    )
    size = (entry.get("stdout_bytes") or 0) + (entry.get("stderr_bytes") or 0)
    took = f"{entry['seconds']:.2f}s" if "seconds" in entry else ""
    command = escape_controls(" ".join((entry.get("command") or "").split()))
    short = command if len(command) <= 100 else f"{command[:99]}…"
    if entry.get("refused"):
        short += f"  [{escape_controls(str(entry['refused']))}]"
    return (
        f"{when:<12} {entry.get('contract', ''):<8} {entry.get('run') or '-':<6} "
        f"{_format_ending(entry):<12}"
        f" {took:>8} {human_size(size):>8}  {short}  ({short_path(entry.get('cwd') or '')})"
    ).rstrip()


def _format_ending(entry: dict[str, Any]) -> str:
    code = entry.get("exit_code")
    match entry.get("ending"):
        case "Exited":
            return f"exit {code}"
        case "Killed":
            return f"signal {code - 128}" if code else "killed"
        case "TimedOut":
            return "timed out"
        case "NotStarted":
            return "not started"
        case "Running":
            return "background"
        case other:
            return str(other).lower()
