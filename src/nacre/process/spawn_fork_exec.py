"""Process start by vfork(2), whose cost does not grow with the memory of the host process, even at
2 GB.

`subprocess.Popen` (without `preexec_fn`) ends in one C function that vforks and execs. The Python
code of `subprocess.Popen` handles cases that nacre does not have, and takes up to a twelfth of the
time in which nacre runs an `echo`. To save this time, nacre calls the C function behind
`subprocess.Popen` directly, on Python versions where the parameters of the C function are known. If
the C function behind `subprocess.Popen` has unknown parameters or fails, nacre uses Popen itself,
which starts the process or raises an error with the reason.
"""

import fcntl
import os
import select
import sys
from collections.abc import Callable
from itertools import starmap
from typing import Final

from nacre.process.rlimits import temporary_rlimits
from nacre.process.spawn_request import SpawnAttempt, SpawnRequest

_KNOWN_VERSIONS: Final = ((3, 11), (3, 12), (3, 13))
# milliseconds that a child may take to exec where vfork acts as fork, as in some emulators
_EXEC_WAIT: Final = 50
_fork_exec: Callable[..., int] | None = None
if sys.implementation.name == "cpython" and sys.version_info[:2] in _KNOWN_VERSIONS:
    from _posixsubprocess import fork_exec as _fork_exec


def spawn(request: SpawnRequest, attempt: SpawnAttempt) -> None:
    """Start the requested process, and call `attempt.on_started` right after the fork.

    Raises OSError as Popen does. After an exception or an interrupt in `spawn`, the caller must
    call `attempt.rollback`.
    """
    if not _spawn_fork_exec(request, attempt):
        attempt.discard_child()
        from nacre.process.spawn_popen import spawn_popen  # imported lazily: Popen is rarely needed

        spawn_popen(request, attempt)


def _spawn_fork_exec(request: SpawnRequest, attempt: SpawnAttempt) -> bool:
    """Start the process by the C function behind `subprocess.Popen`; return False after any
    failure."""
    words, passed, variables = request.argv, request.pass_fds, None
    if _fork_exec is None or b"/" not in words[0]:
        return False
    if (env := request.env) is not None:
        if any(b"=" in name for name in env):
            return False
        variables = [b"%b=%b" % each for each in env.items()]
    # Audit hooks recognize a process start by the event name `subprocess.Popen`.
    sys.audit("subprocess.Popen", words[0], words, request.cwd, env)
    # The error pipe reaches EOF when the child execs; a child whose exec fails writes the error to
    # the pipe.
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if writing < 3:  # descriptors 0 to 2 are for the child's standard streams
            low, writing = writing, fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, 3)
            os.close(low)
        inherited = tuple(sorted((*passed, writing))) if passed else (writing,)
        # fmt: off
        arguments = (
            words, (words[0],), True, inherited, request.cwd, variables,
            request.stdin, -1, -1, request.output, -1, request.errors, reading, writing,
            True, True, -1, None, None, None, request.umask, None, True,
        )
        # fmt: on
        if request.limits:
            with temporary_rlimits(request.limits):
                attempt.pids.extend(starmap(_fork_exec, (arguments,)))
        else:
            # All steps from the fork to the recording of the pid run in C, so that no interrupt can
            # lose the pid.
            attempt.pids.extend(starmap(_fork_exec, (arguments,)))
        attempt.on_started()
    finally:
        os.close(writing)
        trouble = _read_trouble(reading) if attempt.pids else b""
        os.close(reading)
    return not trouble


def _read_trouble(reading: int) -> bytes:
    """Return the first byte of the error that a child with a failed exec wrote; b"" if its exec
    succeeded.

    When vfork returns, the child's exec has already failed or succeeded. The error pipe is read
    without blocking, because its EOF may come late: if another thread forks during the spawn, the
    forked process also holds the pipe's write end open.
    """
    try:
        return os.read(reading, 1)
    except BlockingIOError:
        pass
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.poll(_EXEC_WAIT)
    try:
        return os.read(reading, 1)
    except BlockingIOError:
        return b""
