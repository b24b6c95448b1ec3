"""Starting a process that is nobody's child: it goes on when we are gone, and is never our zombie.

A shell starts it in the background and ends at once, so that it comes to init, or to whoever is the
subreaper above us. It is born with the warden's tag: no run may take it for a part of itself.
"""

import os
import resource
from contextlib import suppress

from nacre.model.plan import BASH
from nacre.process import rlimits, spawner
from nacre.process.run_tag import WARDEN_TAG
from nacre.process.spawn_fork_exec import spawn
from nacre.process.spawn_request import SpawnAttempt, SpawnRequest
from nacre.procfs import processes


def start_daemon(
    words: list[bytes], env: dict[bytes, bytes], *, errors: int, passed: tuple[int, ...]
) -> None:
    """`errors` is where its stderr goes; it has no other output. Raises OSError."""
    command = [BASH, b"-c", b'"$0" "$@" &', *words]
    hard = resource.getrlimit(processes.RLIMIT_LOCKS)[1]
    if rlimits.has_prlimit() and (hard == resource.RLIM_INFINITY or WARDEN_TAG.value <= hard):
        # And with all that it may have: whoever starts it may be short of something, and where
        # files may not grow, Python would even leave broken bytecode behind.
        command = [
            rlimits.PRLIMIT,
            b"--locks=%d:" % WARDEN_TAG.value,
            *rlimits.prlimit_raise_options(),
            *command,
        ]
    attempt = SpawnAttempt()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        spawn(SpawnRequest(command, b"/", env, nothing, nothing, errors, passed, 0o077), attempt)
        with suppress(ChildProcessError):  # our host collects every child
            os.waitid(os.P_PIDFD, attempt.pidfd, os.WEXITED | os.WNOWAIT)
        spawner.collect(attempt.pidfd)
        os.close(attempt.pidfd)
    except BaseException:
        attempt.rollback()
        raise
    finally:
        os.close(nothing)
