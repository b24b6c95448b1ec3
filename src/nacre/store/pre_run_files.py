"""Chores before a command starts: creating the files and directories that the command needs."""

import os
import threading
from typing import assert_never

from nacre.model.plan import Chore, MakeDirectory, MakeFile
from nacre.model.refusals import CannotSpawn, Refused
from nacre.store.state_dir import make_private_directory
from nacre.text.clean import decode


def do_chores(chores: tuple[Chore, ...]) -> None:
    """Create the files and directories that a command needs; the function is idempotent. Raises
    Refused."""
    for chore in chores:
        try:
            _do_chore(chore)
        except (OSError, ValueError) as error:  # ValueError: the path has a NUL or a surrogate
            why = error.strerror if isinstance(error, OSError) else error
            reason = f"{decode(chore.path)} cannot be created ({why})"
            raise Refused(CannotSpawn(reason=reason)) from None


def _do_chore(chore: Chore) -> None:
    match chore:
        case MakeDirectory(path=path):
            make_private_directory(os.fsdecode(path))
        case MakeFile(path=path, data=data):
            make_private_directory(os.path.dirname(os.fsdecode(path)))
            _make_file(path, data)
        case _:
            assert_never(chore)


def _make_file(path: bytes, data: bytes) -> None:
    """Create a file by atomic rename, because another process may create the same file at the same
    time."""
    if os.path.lexists(path):
        return
    draft = path + b".%d.%d" % (os.getpid(), threading.get_ident())
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
        file.write(data)
    os.rename(draft, path)
