"""The other way to start a process: `subprocess.Popen`, which knows every Python and says why."""

import subprocess
from contextlib import nullcontext

from nacre.process.birth import Birth, Order
from nacre.process.worn import worn


def start(order: Order, birth: Birth) -> None:
    with worn(order.limits) if order.limits else nullcontext():
        _Popen(order, birth)


class _Popen(subprocess.Popen[bytes]):
    """Popen that tells of its child the moment it is born, and never waits for it."""

    def __init__(self, order: Order, birth: Birth) -> None:
        self._birth = birth
        super().__init__(
            order.words,
            stdin=order.stdin,
            stdout=order.output,
            stderr=order.errors,
            cwd=order.cwd,
            env=order.env,
            pass_fds=order.passed,
            start_new_session=True,
            umask=order.umask,
        )

    @property
    def pid(self) -> int:
        return self._birth.pids[0] if self._birth.pids else 0

    @pid.setter
    def pid(self, number: int | None) -> None:
        if number is not None:  # as Popen has it at first
            self.returncode = 0  # keeps Popen from ever collecting this pid
            self._birth.pids.append(number)
            self._birth.happened()
