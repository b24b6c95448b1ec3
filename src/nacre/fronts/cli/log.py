"""`nacre log`: the audit log, for people."""

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from nacre.fronts.cli.common import complain, printable, show
from nacre.fronts.cli.runs import short_path
from nacre.store.appending import OLDER
from nacre.store.audit import NAME
from nacre.store.home import home
from nacre.text import human_size

_PAUSE = 0.25


def main(options: argparse.Namespace) -> int:
    try:
        path = f"{home()}/{NAME}"
        follower = _Follower(path)
        for line in deque(follower.earlier(), maxlen=options.lines):
            _show(line, options)
        while options.follow:
            time.sleep(_PAUSE)
            for line in follower.new():
                _show(line, options)
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(f"{error.filename or 'the log'} cannot be read: {error.strerror or error}")
        return 1
    return 0


class _Follower:
    """Reads the log, and what is added to it, also when a new file has begun meanwhile."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode: int | None = None
        self._at = 0
        self._rest = b""

    def earlier(self) -> Iterator[bytes]:
        """All there is, the oldest first."""
        for number in range(OLDER, 0, -1):
            yield from _lines(f"{self._path}.{number}")
        yield from self.new()

    def new(self) -> Iterator[bytes]:
        """What has come since the last time."""
        try:
            with open(self._path, "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    if self._inode is not None:
                        yield from self._remainder()
                    self._inode, self._at, self._rest = inode, 0, b""
                file.seek(self._at)
                yield from self._cut(file.read())
        except FileNotFoundError:
            return

    def _remainder(self) -> Iterator[bytes]:
        """What came to the file that we knew before it was put aside."""
        try:
            with open(f"{self._path}.1", "rb") as file:
                if os.fstat(file.fileno()).st_ino == self._inode:
                    file.seek(self._at)
                    yield from self._cut(file.read())
        except FileNotFoundError:
            return

    def _cut(self, data: bytes) -> list[bytes]:
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
        show(line.decode("utf-8", "replace"))
        return
    try:
        show(_in_words(json.loads(line)))
    except (ValueError, LookupError, AttributeError, TypeError):
        show(f"(a line that cannot be read: {printable(line[:60].decode('utf-8', 'replace'))}…)")


def _in_words(said: dict[str, Any]) -> str:
    """`10:15:02  phoenix  r17   exit 0    0.02s   1.2KB  make test   (~/repo)`."""
    moment = datetime.fromisoformat(said["time"]).astimezone()
    when = (
        f"{moment:%H:%M:%S}" if moment.date() == datetime.now().date() else f"{moment:%d %b %H:%M}"
    )
    size = (said.get("stdout_bytes") or 0) + (said.get("stderr_bytes") or 0)
    took = f"{said['seconds']:.2f}s" if "seconds" in said else ""
    command = printable(" ".join((said.get("command") or "").split()))
    short = command if len(command) <= 100 else f"{command[:99]}…"
    if said.get("refused"):
        short += f"  [{printable(str(said['refused']))}]"
    return (
        f"{when:<12} {said.get('contract', ''):<8} {said.get('run') or '-':<6} {_ended(said):<12}"
        f" {took:>8} {human_size(size):>8}  {short}  ({short_path(said.get('cwd') or '')})"
    ).rstrip()


def _ended(said: dict[str, Any]) -> str:
    code = said.get("exit_code")
    match said.get("ending"):
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
