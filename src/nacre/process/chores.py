"""What must be made before a command can start."""

import os

from nacre.plan import Chore
from nacre.refusals import CannotSpawn, Refused
from nacre.text import decode


def do(chores: tuple[Chore, ...]) -> None:
    """Raises Refused. Doing it again does no harm."""
    for chore in chores:
        try:
            os.makedirs(chore.path, mode=0o700, exist_ok=True)
        except OSError as error:
            reason = f"the directory {decode(chore.path)} cannot be made ({error.strerror})"
            raise Refused(CannotSpawn(reason=reason)) from None
