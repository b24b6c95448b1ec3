"""Process start by `subprocess.Popen`, the fallback of `spawn_fork_exec`.

Popen works with every Python version, and after a failed start it raises an error with the reason.
"""

import subprocess
from contextlib import nullcontext

from nacre.process.rlimits import temporary_rlimits
from nacre.process.spawn_request import SpawnAttempt, SpawnRequest


def spawn_popen(request: SpawnRequest, attempt: SpawnAttempt) -> None:
    with temporary_rlimits(request.limits) if request.limits else nullcontext():
        _Popen(request, attempt)


class _Popen(subprocess.Popen[bytes]):
    """Subclass of Popen that calls `on_started` right after the fork and never waits for its
    child."""

    def __init__(self, request: SpawnRequest, attempt: SpawnAttempt) -> None:
        self._attempt = attempt
        super().__init__(
            request.argv,
            stdin=request.stdin,
            stdout=request.output,
            stderr=request.errors,
            cwd=request.cwd,
            env=request.env,
            pass_fds=request.pass_fds,
            start_new_session=True,
            umask=request.umask,
        )

    @property
    def pid(self) -> int:
        return self._attempt.pids[0] if self._attempt.pids else 0

    @pid.setter
    def pid(self, number: int | None) -> None:
        if number is not None:  # Popen sets `pid` to None before it starts the child
            self.returncode = 0  # a set `returncode` keeps Popen from reaping the child
            self._attempt.pids.append(number)
            self._attempt.on_started()
