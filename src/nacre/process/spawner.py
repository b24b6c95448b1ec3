"""Starting a command, and learning how its shell ended.

The shell leads a new session, so it has no terminal and no signal of ours is ever sent to our
own group. Its end is a readable pidfd; the zombie is left until its tree is gone: as long as it
is there, its pid, group and session cannot become somebody else's.
"""

import errno
import fcntl
import os
import re
import resource
import struct
import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from nacre.model.outcome import Exited, Killed
from nacre.model.plan import LeftoverPolicy, Plan, Streams
from nacre.model.refusals import (
    AnyRefusal,
    BadDirectory,
    CannotSpawn,
    DirectoryProblem,
    NoDescriptors,
    NoMemory,
    NoProcesses,
    NoShell,
    Refused,
)
from nacre.process import memfd, rlimits, run_tag
from nacre.process.rlimits import Rlimit
from nacre.process.spawn_fork_exec import spawn
from nacre.process.spawn_request import SpawnAttempt, SpawnRequest
from nacre.procfs import processes
from nacre.procfs.processes import RLIMIT_LOCKS

_DEVNULL_DEVICE: Final = os.stat(os.devnull).st_rdev
_BACKGROUNDS: Final = re.compile(rb"(?<![&<>|])&(?![&>])|setsid")


SpawnFunction = Callable[[SpawnRequest, SpawnAttempt], None]
idle_threads: Final[set[threading.Thread]] = set()  # threads of ours that keep nobody from running


class Child(Struct, frozen=True):
    """A shell under way: who it is and where it can be read."""

    pid: int
    pidfd: int
    output: int  # reading end
    errors: int | None  # reading end, when stderr has its own
    tag: run_tag.Tag | None
    stdin: int | None = None  # writing end, when it stays open


class Spawner:
    """Starts shells; what all of them need is made once.

    `own_process`: this process belongs to nacre, so the tag can be worn during the spawn.
    """

    def __init__(self, *, own_process: bool) -> None:
        self._devnull = -1  # nothing to read: /dev/null
        self._own_process = own_process
        self._tags = run_tag.TagFactory()
        self._limits = rlimits.read_rlimits()
        self._devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def new_tag(self) -> run_tag.Tag | None:
        """For the next one."""
        return self._tags.new()

    @property
    def hard_limit(self) -> int:
        """The hard limit beside a tag."""
        return self._tags.hard

    def spawn(
        self,
        plan: Plan,
        attempt: SpawnAttempt,
        tag: run_tag.Tag | None,
        pass_fds: tuple[int, ...] = (),
        start: SpawnFunction = spawn,
    ) -> Child:
        """Start the plan's shell; it inherits `pass_fds`, too. Raises Refused, leaving nothing
        behind; a caller that is interrupted before it has the child rolls back the attempt."""
        try:
            return self._spawn(plan, attempt, tag, pass_fds, start)
        except BaseException as error:
            attempt.rollback()
            if isinstance(error, OSError):
                raise Refused(_build_refusal(plan, error)) from error
            if isinstance(error, ValueError):  # a NUL byte, an impossible variable name
                raise Refused(CannotSpawn(reason=str(error))) from error
            raise

    def intact(self) -> bool:
        """Whether the descriptor that we opened is still there, and still ours."""
        try:
            return os.fstat(self._devnull).st_rdev == _DEVNULL_DEVICE
        except OSError:
            return False

    def disown(self) -> None:
        """The number is somebody else's by now: never close it."""
        self._devnull = -1

    def close(self) -> None:
        fd, self._devnull = self._devnull, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _spawn(
        self,
        plan: Plan,
        attempt: SpawnAttempt,
        tag: run_tag.Tag | None,
        passed: tuple[int, ...],
        start: SpawnFunction,
    ) -> Child:
        command, script, given, stdin = plan.command, plan.command.script, plan.stdin, self._devnull
        words = [plan.shell, b"-c", b"--", script]
        output = errors = _open_output_pipe(attempt)
        if plan.streams is Streams.SEPARATE:
            errors = _open_output_pipe(attempt)
        if isinstance(given, bytes):
            attempt.child_fds.append(stdin := memfd.create_memfd("nacre-stdin", given))
        elif given is not None:
            stdin = _open_input_pipe(attempt)
        if len(script) > memfd.LONGEST_ARGUMENT:
            attempt.child_fds.append(fd := memfd.create_memfd("nacre-script", script))
            words[-1], passed = memfd.build_script_loader(fd), (*passed, fd)
        attempt.tag, attempt.hard_limit = tag, self._tags.hard
        wear: tuple[Rlimit, ...] = ()
        if tag is not None and self._own_process:
            wear = ((RLIMIT_LOCKS, tag.value, attempt.hard_limit),)
        elif tag is not None:
            if _needs_tag_at_start(plan) and _can_start_tagged(plan.shell):
                words = [rlimits.PRLIMIT, b"--locks=%d:" % tag.value, *words]
            else:
                attempt.late_tag = tag
        umask = -1
        if command.caller_limits is not None:
            umask = command.caller_limits.umask
            more, set_by_prlimit = rlimits.plan_rlimits(command.caller_limits.limits, self._limits)
            wear += more
            if set_by_prlimit and not _can_start_tagged(plan.shell):
                what = b", ".join(set_by_prlimit).decode()
                raise ValueError(f"its caller's limits ({what}) take /usr/bin/prlimit; install it")
            if set_by_prlimit:
                words = [rlimits.PRLIMIT, *set_by_prlimit, *words]
        request = SpawnRequest(
            words, command.cwd, command.env, stdin, output, errors, passed, umask, wear
        )
        start(request, attempt)
        attempt.close_child_fds()
        return _build_child(plan, attempt, tag)


def _build_child(plan: Plan, attempt: SpawnAttempt, tag: run_tag.Tag | None) -> Child:
    """What we keep is in the order in which it was made."""
    output, *more = attempt.parent_fds
    errors = more.pop(0) if plan.streams is Streams.SEPARATE else None
    return Child(attempt.pids[0], attempt.pidfd, output, errors, tag, more[0] if more else None)


def _needs_tag_at_start(plan: Plan) -> bool:
    """Whether something could escape before we have tagged the shell.

    In a host we do so right after the spawn, some 20 µs, while bash takes a millisecond to start.
    But a spawn lets go of the GIL, which another thread may keep from us for 5 ms; and now and then
    the kernel lets the child run for its whole slice first. So where there are other threads, or
    the script puts something into the background, prlimit(1) sets the tag and becomes the shell;
    it costs half a millisecond. A script that is misread only takes the other way, unless all that
    it starts is to be ended: then files that it reads, such as the user's set-up, count as well.
    """
    script = plan.command.script
    if plan.leftovers is LeftoverPolicy.END or threading.active_count() - len(idle_threads) > 1:
        return True
    return (b"&" in script or b"setsid" in script) and _BACKGROUNDS.search(script) is not None


def _can_start_tagged(shell: bytes) -> bool:
    """Whether prlimit(1) is there, and sure to become the shell: it could not tell us why not."""
    if not (rlimits.has_prlimit() and os.access(shell, os.X_OK)):
        return False
    try:
        fd = os.open(shell, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return shell.startswith(b"/") and os.read(fd, 4) == b"\x7fELF"
    except OSError:  # a directory
        return False
    finally:
        os.close(fd)


def _open_output_pipe(attempt: SpawnAttempt) -> int:
    """The writing end of a pipe, for the child; the reading end we keep."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    attempt.parent_fds.append(reading)
    attempt.child_fds.append(writing)
    os.set_blocking(reading, False)
    return writing


def _open_input_pipe(attempt: SpawnAttempt) -> int:
    """The reading end of a pipe, for the child; the writing end we keep."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    attempt.child_fds.append(reading)
    attempt.parent_fds.append(writing)
    os.set_blocking(writing, False)
    return reading


def _build_refusal(plan: Plan, error: OSError) -> AnyRefusal:
    match error.errno:
        case errno.EMFILE | errno.ENFILE:
            return NoDescriptors(limit=descriptor_limit())
        case errno.EAGAIN:
            return NoProcesses()
        case errno.ENOMEM:
            return NoMemory()
        case errno.E2BIG:
            return CannotSpawn(reason="its environment is too large for this system")
    about = (
        error.filename if isinstance(error.filename, bytes) else os.fsencode(error.filename or b"")
    )
    if about == plan.command.cwd:
        return BadDirectory(path=about, problem=_directory_problem(error))
    if about == plan.shell:
        return NoShell(path=about, reason=(error.strerror or str(error)).lower())
    return CannotSpawn(reason=str(error))


def descriptor_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _directory_problem(error: OSError) -> DirectoryProblem:
    match error.errno:
        case errno.ENOTDIR:
            return DirectoryProblem.NOT_A_DIRECTORY
        case errno.EACCES:
            return DirectoryProblem.FORBIDDEN
        case _:
            return DirectoryProblem.MISSING


def collect(pidfd: int, *, leave: bool = False) -> Exited | Killed | None:
    """How the shell ended; lets the zombie go, or leaves it. None when it has not ended, or nobody
    can tell."""
    options = os.WNOWAIT if leave else 0
    try:
        status = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | options)
    except OSError:
        # The host collects every child, or ignores SIGCHLD; the kernel may still remember.
        return _read_pidfd_status(pidfd)
    if status is None:
        return None
    if status.si_code == os.CLD_EXITED:
        return Exited(status.si_status)
    return Killed(status.si_status)


# PIDFD_GET_INFO of struct pidfd_info, 64 bytes; answers for collected processes since Linux 6.15.
_GET_INFO: Final = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_INFO_EXIT: Final = 1 << 3


def _read_pidfd_status(pidfd: int) -> Exited | Killed | None:
    info = bytearray(struct.pack("<Q56x", _INFO_EXIT))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    mask, code = struct.unpack("<Q52xi", info)
    return _decode_status(code) if mask & _INFO_EXIT else None


def _decode_status(code: int) -> Exited | Killed:
    return Killed(code & 0x7F) if code & 0x7F else Exited(code >> 8)


def foreign_exit_status(pidfd: int, pid: int, started: int) -> Exited | Killed | None:
    """How somebody else's child ended, which has: from its zombie, if nobody has collected that,
    or from what the kernel remembers once somebody has. None: neither, or not at this moment."""
    code = processes.exit_code(pid, started)
    return _read_pidfd_status(pidfd) if code is None else _decode_status(code)
