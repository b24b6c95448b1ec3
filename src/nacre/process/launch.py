"""From words to a running process, by vfork: a host of 2 GB pays nothing for its size.

`subprocess.Popen` (without `preexec_fn`) ends in one C function that vforks and execs. Everything
before that is for cases that are not ours, and takes a twelfth of the time of an `echo`. So we
call that function ourselves on the versions of Python where we know its parameters; on any other,
and whenever it reports trouble, it is Popen that starts the process, or says why it cannot.
"""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import starmap
from typing import Final

from msgspec import Struct

from nacre.process import tag

_KNOWN: Final = ((3, 11), (3, 12), (3, 13))
_fork_exec: Callable[..., int] | None = None
if sys.implementation.name == "cpython" and sys.version_info[:2] in _KNOWN:
    from _posixsubprocess import fork_exec as _fork_exec


class Order(Struct, frozen=True):
    """What shall be started, in a session of its own."""

    words: list[bytes]  # the first is the program
    cwd: bytes
    env: dict[bytes, bytes] | None  # None: what this process has
    stdin: int
    output: int
    errors: int
    passed: tuple[int, ...]  # what else the child keeps open


class Birth:
    """What must be done to a child in its first microseconds, before bash can fork."""

    pidfd = -1

    def __init__(self, mark: tag.Tag | None, hard: int) -> None:
        """`mark`: a tag that the child is not born with; `hard`: the hard limit that it is."""
        self._mark = mark
        self._hard = hard
        self.pids: list[int] = []  # one, when all goes well

    def happened(self) -> None:
        pid = self.pids[0]
        if self._mark is not None:
            tag.put(pid, self._mark, self._hard)
        try:
            self.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            # A host that collects every child was faster. Something that is readable at once, and
            # tells as little about the end, stands in for the pidfd.
            self.pidfd = os.eventfd(1, os.EFD_CLOEXEC)

    def undo(self) -> None:
        """The spawn failed, or was interrupted: no child of ours may live on unknown."""
        while self.pids:
            _end(self.pids[0])
            self.pids.pop()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def _end(pid: int) -> None:
    """Kill a child and collect it, unless Popen has done so."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return  # the number may be somebody else's by now
    for kill in (os.killpg, os.kill):  # it may have a group already
        with suppress(OSError):
            kill(pid, signal.SIGKILL)
    with suppress(OSError):
        os.waitpid(pid, 0)


def launch(order: Order, birth: Birth) -> None:
    """Start it, and see to it the moment that it is born. Raises OSError as Popen does; whoever
    gets that, or is interrupted, undoes the birth."""
    if not _directly(order, birth):
        birth.undo()
        _Popen(order, birth)


def _directly(order: Order, birth: Birth) -> bool:
    """False when nothing has come of it, for whatever reason."""
    words, passed, variables = order.words, order.passed, None
    if _fork_exec is None or b"/" not in words[0]:
        return False
    if (env := order.env) is not None:
        if any(b"=" in name for name in env):
            return False
        variables = [b"%b=%b" % each for each in env.items()]
    reading, writing = os.pipe2(os.O_CLOEXEC)  # ends when the child execs, or says why it cannot
    try:
        if writing < 3:  # where the child's own three will lie
            low, writing = writing, fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, 3)
            os.close(low)
        kept = tuple(sorted((*passed, writing))) if passed else (writing,)
        # fmt: off
        arguments = (
            words, (words[0],), True, kept, order.cwd, variables,
            order.stdin, -1, -1, order.output, -1, order.errors, reading, writing,
            True, True, -1, None, None, None, -1, None, True,
        )
        # fmt: on
        # All of it in C, from the birth to the list: no interrupt can lose a pid.
        birth.pids.extend(starmap(_fork_exec, (arguments,)))
        birth.happened()
    finally:
        os.close(writing)
        trouble = os.read(reading, 1) if birth.pids else b""
        os.close(reading)
    return not trouble


class _Popen(subprocess.Popen[bytes]):
    """Popen that tells of its child the moment it is born, and never waits for it."""

    def __init__(self, order: Order, birth: Birth) -> None:
        self._birth = birth
        super().__init__(
            order.words,
            stdin=order.stdin,
            stdout=order.output,
            stderr=order.errors,
            cwd=order.cwd,
            env=order.env,
            pass_fds=order.passed,
            start_new_session=True,
        )
        self.returncode = 0  # keeps Popen from ever collecting this pid

    @property
    def pid(self) -> int:
        return self._birth.pids[0] if self._birth.pids else 0

    @pid.setter
    def pid(self, number: int | None) -> None:
        if number is not None:  # as Popen has it at first
            self._birth.pids.append(number)
            self._birth.happened()
