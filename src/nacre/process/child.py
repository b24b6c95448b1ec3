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

from nacre import proc
from nacre.outcome import Exited, Killed
from nacre.plan import Plan, Streams
from nacre.proc import RLIMIT_LOCKS
from nacre.process import inputs, tag, terms
from nacre.process.birth import Birth, Order
from nacre.process.launch import launch
from nacre.process.worn import Worn
from nacre.refusals import (
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

_NOTHING: Final = os.stat(os.devnull).st_rdev
_DETACHES: Final = re.compile(rb"(?<![&<>|])&(?![&>])|setsid")


Start = Callable[[Order, Birth], None]
harmless: Final[set[threading.Thread]] = set()  # threads of ours that keep nobody from running


class Child(Struct, frozen=True):
    """A shell under way: who it is and where it can be read."""

    pid: int
    pidfd: int
    output: int  # reading end
    errors: int | None  # reading end, when stderr has its own
    tag: tag.Tag | None
    stdin: int | None = None  # writing end, when it stays open


class Spawner:
    """Starts shells; what all of them need is made once.

    `ours`: this process belongs to nacre, so the tag can be worn during the spawn.
    """

    _nothing = -1  # nothing to read: /dev/null

    def __init__(self, *, ours: bool) -> None:
        self._ours = ours
        self._tags = tag.Tags()
        self._limits = terms.limits()
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def new_tag(self) -> tag.Tag | None:
        """For the next one."""
        return self._tags.new()

    @property
    def hard(self) -> int:
        """The hard limit beside a tag."""
        return self._tags.hard

    def spawn(
        self,
        plan: Plan,
        birth: Birth,
        mark: tag.Tag | None,
        passed: tuple[int, ...] = (),
        start: Start = launch,
    ) -> Child:
        """Start the plan's shell; `passed` are descriptors that it shall have, too. Raises Refused,
        leaving nothing behind; whoever is interrupted before he has the child undoes the birth."""
        try:
            return self._spawn(plan, birth, mark, passed, start)
        except BaseException as error:
            birth.undo()
            if isinstance(error, OSError):
                raise Refused(_refusal(plan, error)) from error
            if isinstance(error, ValueError):  # a NUL byte, an impossible variable name
                raise Refused(CannotSpawn(reason=str(error))) from error
            raise

    def intact(self) -> bool:
        """Whether the descriptor that we opened is still there, and still ours."""
        try:
            return os.fstat(self._nothing).st_rdev == _NOTHING
        except OSError:
            return False

    def disown(self) -> None:
        """The number is somebody else's by now: never close it."""
        self._nothing = -1

    def close(self) -> None:
        fd, self._nothing = self._nothing, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _spawn(
        self,
        plan: Plan,
        birth: Birth,
        mark: tag.Tag | None,
        passed: tuple[int, ...],
        start: Start,
    ) -> Child:
        command, script, given, stdin = plan.command, plan.command.script, plan.stdin, self._nothing
        words = [plan.shell, b"-c", b"--", script]
        output = errors = _pipe(birth)
        if plan.streams is Streams.SEPARATE:
            errors = _pipe(birth)
        if isinstance(given, bytes):
            birth.given.append(stdin := inputs.memory_file("nacre-stdin", given))
        elif given is not None:
            stdin = _input_pipe(birth)
        if len(script) > inputs.LONGEST_ARGUMENT:
            birth.given.append(fd := inputs.memory_file("nacre-script", script))
            words[-1], passed = inputs.long_script_loader(fd), (*passed, fd)
        birth.hard = self._tags.hard
        wear: tuple[Worn, ...] = ()
        if mark is not None and self._ours:
            wear = ((RLIMIT_LOCKS, mark.value, birth.hard),)
        elif mark is not None:
            if _comes_too_late(script) and _can_be_tagged(plan.shell):
                words = [terms.PRLIMIT, b"--locks=%d:" % mark.value, *words]
            else:
                birth.late = mark
        umask = -1
        if command.terms is not None:
            umask = command.terms.umask
            more, set_by_prlimit = terms.needed(command.terms.limits, self._limits)
            wear += more
            if set_by_prlimit and not _can_be_tagged(plan.shell):
                what = b", ".join(set_by_prlimit).decode()
                raise ValueError(f"its caller's limits ({what}) take /usr/bin/prlimit; install it")
            if set_by_prlimit:
                words = [terms.PRLIMIT, *set_by_prlimit, *words]
        order = Order(words, command.cwd, command.env, stdin, output, errors, passed, umask, wear)
        start(order, birth)
        birth.give()
        return _child(plan, birth, mark)


def _child(plan: Plan, birth: Birth, mark: tag.Tag | None) -> Child:
    """What we keep is in the order in which it was made."""
    output, *more = birth.kept
    errors = more.pop(0) if plan.streams is Streams.SEPARATE else None
    return Child(birth.pids[0], birth.pidfd, output, errors, mark, more[0] if more else None)


def _comes_too_late(script: bytes) -> bool:
    """Whether something could escape before we have tagged the shell.

    In a host we do so right after the spawn, some 20 µs, while bash takes a millisecond to start.
    But a spawn lets go of the GIL, which another thread may keep from us for 5 ms; and now and then
    the kernel lets the child run for its whole slice first. So where there are other threads, or
    the script puts something into the background, prlimit(1) sets the tag and becomes the shell;
    it costs half a millisecond. A script that is misread only takes the other way.
    """
    if threading.active_count() - len(harmless) > 1:
        return True
    return (b"&" in script or b"setsid" in script) and _DETACHES.search(script) is not None


def _can_be_tagged(shell: bytes) -> bool:
    """Whether prlimit(1) is there, and sure to become the shell: it could not tell us why not."""
    if not (terms.can_be_set() and os.access(shell, os.X_OK)):
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


def _pipe(birth: Birth) -> int:
    """The writing end of a pipe, for the child; the reading end we keep."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    birth.kept.append(reading)
    birth.given.append(writing)
    os.set_blocking(reading, False)
    return writing


def _input_pipe(birth: Birth) -> int:
    """The reading end of a pipe, for the child; the writing end we keep."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    birth.given.append(reading)
    birth.kept.append(writing)
    os.set_blocking(writing, False)
    return reading


def _refusal(plan: Plan, error: OSError) -> AnyRefusal:
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
    kept = os.WNOWAIT if leave else 0
    try:
        status = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | kept)
    except OSError:
        # The host collects every child, or ignores SIGCHLD; the kernel may still remember.
        return _remembered(pidfd)
    if status is None:
        return None
    if status.si_code == os.CLD_EXITED:
        return Exited(status.si_status)
    return Killed(status.si_status)


# PIDFD_GET_INFO of struct pidfd_info, 64 bytes; answers for collected processes since Linux 6.15.
_GET_INFO: Final = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_INFO_EXIT: Final = 1 << 3


def _remembered(pidfd: int) -> Exited | Killed | None:
    info = bytearray(struct.pack("<Q56x", _INFO_EXIT))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    mask, code = struct.unpack("<Q52xi", info)
    return _status(code) if mask & _INFO_EXIT else None


def _status(code: int) -> Exited | Killed:
    return Killed(code & 0x7F) if code & 0x7F else Exited(code >> 8)


def status_of_stranger(pidfd: int, pid: int, started: int) -> Exited | Killed | None:
    """How somebody else's child ended, which has: from its zombie, if nobody has collected that,
    or from what the kernel remembers once somebody has. None: neither, or not at this moment."""
    code = proc.exit_code(pid, started)
    return _remembered(pidfd) if code is None else _status(code)
