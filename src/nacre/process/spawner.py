"""Start of a command's shell, and the exit status of that shell.

The shell of a command leads a new session, so that it has no controlling terminal, and a signal to
its process group never hits nacre itself. The shell's pidfd becomes readable when the shell exits.
The shell stays a zombie until its process tree is gone, so that the kernel cannot reuse its pid,
process group and session for other processes.
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
# Background threads of nacre, which do not delay other threads; `_needs_tag_at_start` counts only
# the threads of the host.
idle_threads: Final[set[threading.Thread]] = set()


class Child(Struct, frozen=True):
    """Shell of a run: its pid and pidfd, its run tag, and this process's ends of its pipes."""

    pid: int
    pidfd: int
    output: int  # read end of the output pipe
    errors: int | None  # read end of the stderr pipe; None: stderr shares the output pipe
    tag: run_tag.Tag | None
    stdin: int | None = None  # write end of the stdin pipe; None: stdin is not a pipe


class Spawner:
    """Factory of shells; opens /dev/null and reads the resource limits once for all spawns.

    With `own_process`, the spawner sets the run tag on this process (a process of nacre, not a
    host) during the spawn, so that the shell inherits the tag.
    """

    def __init__(self, *, own_process: bool) -> None:
        self._devnull = -1  # descriptor of /dev/null, the stdin of commands without input
        self._own_process = own_process
        self._tags = run_tag.TagFactory()
        self._limits = rlimits.read_rlimits()
        self._devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def new_tag(self) -> run_tag.Tag | None:
        """Return a tag for the next run; None when the hard RLIMIT_LOCKS is too low for a tag."""
        return self._tags.new()

    @property
    def hard_limit(self) -> int:
        """Hard RLIMIT_LOCKS of a shell; nacre keeps this value when it sets the soft RLIMIT_LOCKS
        to a run tag."""
        return self._tags.hard

    def spawn(
        self,
        plan: Plan,
        attempt: SpawnAttempt,
        tag: run_tag.Tag | None,
        pass_fds: tuple[int, ...] = (),
        start: SpawnFunction = spawn,
    ) -> Child:
        """Start the plan's shell, which also inherits the descriptors `pass_fds`.

        Raises Refused if the shell cannot be started, and leaves no process and no descriptor
        behind. A caller that is interrupted (Ctrl-C) before `spawn` returns the `Child` calls
        `attempt.rollback`, which kills the shell.
        """
        try:
            return self._spawn(plan, attempt, tag, pass_fds, start)
        except BaseException as error:
            attempt.rollback()
            if isinstance(error, OSError):
                raise Refused(_build_refusal(plan, error)) from error
            # A spawn raises ValueError, for example, if the script contains a NUL byte or an
            # environment variable has an invalid name.
            if isinstance(error, ValueError):
                raise Refused(CannotSpawn(reason=str(error))) from error
            raise

    def intact(self) -> bool:
        """Return whether the spawner's descriptor of /dev/null still refers to /dev/null."""
        try:
            return os.fstat(self._devnull).st_rdev == _DEVNULL_DEVICE
        except OSError:
            return False

    def disown(self) -> None:
        """Forget the spawner's descriptor of /dev/null without closing it, because the host program
        may already use its number for another file."""
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
        command, given, stdin = plan.command, plan.stdin, self._devnull
        script = command.reporting_script or command.script
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
                raise ValueError(
                    f"the caller's resource limits ({what}) need /usr/bin/prlimit; install it"
                )
            if set_by_prlimit:
                words = [rlimits.PRLIMIT, *set_by_prlimit, *words]
        request = SpawnRequest(
            words, command.cwd, command.env, stdin, output, errors, passed, umask, wear
        )
        start(request, attempt)
        attempt.close_child_fds()
        return _build_child(plan, attempt, tag)


def _build_child(plan: Plan, attempt: SpawnAttempt, tag: run_tag.Tag | None) -> Child:
    """Build the `Child` after a successful spawn. The list `attempt.parent_fds` has this process's
    pipe ends in the order of their creation: output, stderr, stdin."""
    output, *more = attempt.parent_fds
    errors = more.pop(0) if plan.streams is Streams.SEPARATE else None
    return Child(attempt.pids[0], attempt.pidfd, output, errors, tag, more[0] if more else None)


def _needs_tag_at_start(plan: Plan) -> bool:
    """Return whether the shell needs its run tag before bash starts, because a process that an
    untagged bash starts might not be recognized as part of the run.

    In a host process, nacre tags the shell some 20 µs after the spawn, while bash takes a
    millisecond to start. nacre may tag the shell too late, when bash has already started a process,
    if another thread of the host gets the GIL at the spawn and holds it for 5 ms. nacre may also
    tag the shell too late because, now and then, the kernel lets the shell run for its whole time
    slice before the host runs again. If the host has other threads, or if the script seems to start
    a background process, prlimit(1) sets the run tag and then execs the shell. Starting a shell
    through prlimit(1) takes half a millisecond longer. The search for background commands in a
    script decides only how the shell gets its run tag: from prlimit(1), or from nacre after the
    spawn. If nacre must end leftover processes (`LeftoverPolicy.END`), prlimit(1) sets the run tag
    for every script, because any script may start processes through files that it reads, such as
    the user's shell startup files.
    """
    script = plan.command.script
    if plan.leftovers is LeftoverPolicy.END or threading.active_count() - len(idle_threads) > 1:
        return True
    return (b"&" in script or b"setsid" in script) and _BACKGROUNDS.search(script) is not None


def _can_start_tagged(shell: bytes) -> bool:
    """Return whether prlimit(1) is installed and will certainly be able to exec the shell.

    If prlimit(1) could not exec the shell, nacre would not learn the reason.
    """
    if not (rlimits.has_prlimit() and os.access(shell, os.X_OK)):
        return False
    try:
        fd = os.open(shell, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return shell.startswith(b"/") and os.read(fd, 4) == b"\x7fELF"
    except OSError:  # the path of the shell is a directory
        return False
    finally:
        os.close(fd)


def _open_output_pipe(attempt: SpawnAttempt) -> int:
    """Open a pipe for a command's output; return its write end for the child, and keep its read
    end."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    attempt.parent_fds.append(reading)
    attempt.child_fds.append(writing)
    os.set_blocking(reading, False)
    return writing


def _open_input_pipe(attempt: SpawnAttempt) -> int:
    """Open a pipe for a command's input; return its read end for the child, and keep its write
    end."""
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
    """Return how the shell ended, and reap its zombie unless `leave` is set.

    Return None when the shell still runs or its exit status cannot be determined.
    """
    options = os.WNOWAIT if leave else 0
    try:
        status = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | options)
    except OSError:
        # The host reaps every child or ignores SIGCHLD, but the kernel may still know the exit
        # status of the shell.
        return _read_pidfd_status(pidfd)
    if status is None:
        return None
    if status.si_code == os.CLD_EXITED:
        return Exited(status.si_status)
    return Killed(status.si_status)


# ioctl number of PIDFD_GET_INFO for a struct pidfd_info of 64 bytes. Since Linux 6.15,
# PIDFD_GET_INFO also returns the exit status of processes that have been reaped.
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
    """Return how a process that is not a child of this process ended.

    The exit status comes from the zombie or, after the zombie has been reaped, from the kernel's
    pidfd information. Return None while the exit status can be read neither from the zombie's entry
    in /proc nor through the pidfd.
    """
    code = processes.exit_code(pid, started)
    return _read_pidfd_status(pidfd) if code is None else _decode_status(code)
