"""From words to a running process, by vfork: a host of 2 GB pays nothing for its size.

`subprocess.Popen` (without `preexec_fn`) ends in one C function that vforks and execs. Everything
before that is for cases that are not ours, and takes up to a twelfth of an `echo`. So we
call that function ourselves on the versions of Python where we know its parameters; on any other,
and whenever it reports trouble, it is Popen that starts the process, or says why it cannot.
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
# Milliseconds for a child to exec where vfork is only a fork, as in some emulators.
_EXEC_WAIT: Final = 50
_fork_exec: Callable[..., int] | None = None
if sys.implementation.name == "cpython" and sys.version_info[:2] in _KNOWN_VERSIONS:
    from _posixsubprocess import fork_exec as _fork_exec


def spawn(request: SpawnRequest, attempt: SpawnAttempt) -> None:
    """Start it, and see to it the moment that it is born. Raises OSError as Popen does; whoever
    gets that, or is interrupted, undoes the birth."""
    if not _spawn_fork_exec(request, attempt):
        attempt.discard_child()
        from nacre.process.spawn_popen import spawn_popen  # seldom: not worth its import

        spawn_popen(request, attempt)


def _spawn_fork_exec(request: SpawnRequest, attempt: SpawnAttempt) -> bool:
    """False when nothing has come of it, for whatever reason."""
    words, passed, variables = request.argv, request.pass_fds, None
    if _fork_exec is None or b"/" not in words[0]:
        return False
    if (env := request.env) is not None:
        if any(b"=" in name for name in env):
            return False
        variables = [b"%b=%b" % each for each in env.items()]
    # By this name it is known to whoever watches what a program does.
    sys.audit("subprocess.Popen", words[0], words, request.cwd, env)
    # Ends when the child execs, or says why it cannot.
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if writing < 3:  # where the child's own three will lie
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
            # All of it in C, from the birth to the list: no interrupt can lose a pid.
            attempt.pids.extend(starmap(_fork_exec, (arguments,)))
        attempt.on_started()
    finally:
        os.close(writing)
        trouble = _read_trouble(reading) if attempt.pids else b""
        os.close(reading)
    return not trouble


def _read_trouble(reading: int) -> bytes:
    """Read what the child wrote because its exec failed; nothing if the exec succeeded. When vfork
    returns, the exec has failed or succeeded.

    Another thread of the host may fork during the spawn. The forked process inherits the write end
    of the pipe, and the pipe stays open until that process exits. So this read must not block.
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
