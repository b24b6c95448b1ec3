"""Starting a command, and learning how its shell ended.

`subprocess.Popen` without `preexec_fn` spawns by vfork: a host of 2 GB pays nothing for its size.
The shell leads a new session, so it has no terminal and no signal of ours is ever sent to our
own group. Its end is a readable pidfd; the zombie is left until its tree is gone: as long as it
is there, its pid, group and session cannot become somebody else's.
"""

import errno
import fcntl
import os
import re
import resource
import signal
import struct
import subprocess
import threading
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

from nacre.outcome import Exited, Killed
from nacre.plan import Plan, Streams
from nacre.process import inputs, tag
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

_NOTHING: Final = nullcontext()
_PRLIMIT: Final = b"/usr/bin/prlimit"
_DETACHES: Final = re.compile(rb"(?<![&<>|])&(?![&>])|setsid")


class Child(NamedTuple):
    """A shell under way: who it is and where it can be read."""

    pid: int
    pidfd: int
    output: int  # reading end
    errors: int | None  # reading end, when stderr has its own
    tag: tag.Tag | None


def spawn(plan: Plan, *, ours: bool) -> Child:
    """Start the plan's shell. Raises Refused, leaving nothing behind.

    `ours`: this process belongs to nacre, so the tag can be worn during the spawn.
    """
    try:
        return _spawn(plan, ours=ours)
    except OSError as error:
        raise Refused(_refusal(plan, error)) from error
    except ValueError as error:  # a NUL byte, an impossible variable name
        raise Refused(CannotSpawn(reason=str(error))) from error


def _spawn(plan: Plan, *, ours: bool) -> Child:
    kept: list[int] = []  # by us, when all goes well
    given: list[int] = []  # to the child
    birth = _Birth(tag.new(), ours=ours)
    try:
        errors = output = _pipe(kept, given)
        if plan.streams is Streams.SEPARATE:
            errors = _pipe(kept, given)
        given.append(stdin := inputs.stdin(plan.stdin))
        script, passed = _argument(plan.command.script)
        given.extend(passed)
        with tag.worn(birth.mark) if ours and birth.mark else _NOTHING:
            _Shell(
                birth,
                [
                    *_tagger(birth, plan.shell, plan.command.script),
                    plan.shell,
                    b"-c",
                    b"--",
                    script,
                ],
                stdin=stdin,
                stdout=output.writing,
                stderr=errors.writing,
                cwd=plan.command.cwd,
                env=plan.command.env,
                pass_fds=passed,
                start_new_session=True,
            )
        kept.clear()
    except BaseException:
        birth.undo()
        raise
    finally:
        for fd in kept + given:
            os.close(fd)
    separate = errors.reading if plan.streams is Streams.SEPARATE else None
    return Child(birth.pid, birth.pidfd, output.reading, separate, birth.mark)


class _Birth:
    """What must be done to a child in its first microseconds, before bash can fork."""

    def __init__(self, mark: tag.Tag | None, *, ours: bool) -> None:
        self.mark = mark
        self.tag_late = mark is not None and not ours
        self.pid = 0
        self.pidfd = -1

    def of(self, pid: int) -> None:
        self.pid = pid
        if self.mark is not None and self.tag_late:
            tag.put(pid, self.mark)
        try:
            self.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            # A host that collects every child was faster. Something that is readable at once, and
            # tells as little about the end, stands in for the pidfd.
            self.pidfd = os.eventfd(1, os.EFD_CLOEXEC)

    def undo(self) -> None:
        """The spawn failed, or was interrupted: no child of ours may live on unknown."""
        if not self.pid:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)  # not collected, so still nobody else
            os.waitpid(self.pid, 0)
        except OSError:  # it never became one, and Popen has collected it
            pass
        if self.pidfd >= 0:
            os.close(self.pidfd)


class _Shell(subprocess.Popen[bytes]):
    """Popen that hands over its child the moment it is born, and never waits for it."""

    def __init__(self, birth: _Birth, arguments: list[bytes], **options: Any) -> None:
        self._birth = birth
        super().__init__(arguments, **options)
        self.returncode = 0  # keeps Popen from ever collecting this pid

    @property
    def pid(self) -> int:
        return self._birth.pid

    @pid.setter
    def pid(self, number: int | None) -> None:
        if number is not None:  # as Popen has it at first
            self._birth.of(number)


def _tagger(birth: _Birth, shell: bytes, script: bytes) -> list[bytes]:
    """What runs before the shell so that it is born with its tag, where we would come too late.

    In a host we tag the shell right after the spawn, some 20 µs, while bash takes a millisecond to
    start. But Popen lets go of the GIL, which another thread may keep from us for 5 ms; and now
    and then the kernel lets the child run for its whole slice first. So where there are other
    threads, or the script puts something into the background, prlimit(1) sets the tag and becomes
    the shell; it costs half a millisecond. A script that is misread only takes the other way.
    """
    if birth.mark is None or not birth.tag_late:
        return []
    if threading.active_count() == 1 and not _DETACHES.search(script):
        return []
    if not (os.access(_PRLIMIT, os.X_OK) and os.access(shell, os.X_OK)):
        return []
    birth.tag_late = False
    return [_PRLIMIT, b"--locks=%d:" % birth.mark.value]


class _Pipe(NamedTuple):
    reading: int
    writing: int


def _pipe(kept: list[int], given: list[int]) -> _Pipe:
    """A pipe whose reading end we keep and whose writing end only the child keeps."""
    pipe = _Pipe(*os.pipe2(os.O_CLOEXEC))
    kept.append(pipe.reading)
    given.append(pipe.writing)
    os.set_blocking(pipe.reading, False)
    return pipe


def _argument(script: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The script as an argument, with the descriptors that it needs."""
    if len(script) <= inputs.LONGEST_ARGUMENT:
        return script, ()
    fd = inputs.memory_file("nacre-script", script)
    return inputs.long_script_loader(fd), (fd,)


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


def collect(pidfd: int) -> Exited | Killed | None:
    """How the shell ended; lets the zombie go. None when it has not, or nobody can tell."""
    try:
        status = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
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
    if not mask & _INFO_EXIT:
        return None
    return Killed(code & 0x7F) if code & 0x7F else Exited(code >> 8)
