"""Start of a daemon: a process that outlives this process and never becomes its zombie.

A shell starts the daemon in the background and exits at once, so that the kernel reparents the
daemon to init or to the nearest subreaper. The daemon starts with the run tag of the warden;
otherwise nacre would take the daemon for a process of the run from which the daemon was started.
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
    """Start a daemon with the command line `words`. Raises OSError.

    The descriptor `errors` becomes the daemon's stderr. The daemon's stdout is `/dev/null`.
    """
    command = [BASH, b"-c", b'"$0" "$@" &', *words]
    hard = resource.getrlimit(processes.RLIMIT_LOCKS)[1]
    if rlimits.has_prlimit() and (hard == resource.RLIM_INFINITY or WARDEN_TAG.value <= hard):
        # prlimit(1) sets the daemon's run tag (a soft RLIMIT_LOCKS value) and raises the daemon's
        # other soft limits to the hard limits. Without prlimit(1), the daemon would inherit the
        # soft limits of this process, which may be low. With a low limit of the file size, the
        # daemon's Python would leave broken bytecode files behind.
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
        with suppress(ChildProcessError):  # the host process has already reaped the child
            os.waitid(os.P_PIDFD, attempt.pidfd, os.WEXITED | os.WNOWAIT)
        spawner.collect(attempt.pidfd)
        os.close(attempt.pidfd)
    except BaseException:
        attempt.rollback()
        raise
    finally:
        os.close(nothing)
