"""The other way to start a process: `subprocess.Popen`, which knows every Python and says why."""

import subprocess
from contextlib import nullcontext

from nacre.process.rlimits import temporary_rlimits
from nacre.process.spawn_request import SpawnAttempt, SpawnRequest


def spawn_popen(request: SpawnRequest, attempt: SpawnAttempt) -> None:
    with temporary_rlimits(request.limits) if request.limits else nullcontext():
        _Popen(request, attempt)


class _Popen(subprocess.Popen[bytes]):
    """Popen that tells of its child the moment it is born, and never waits for it."""

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
        if number is not None:  # as Popen has it at first
            self.returncode = 0  # keeps Popen from ever collecting this pid
            self._attempt.pids.append(number)
            self._attempt.on_started()
