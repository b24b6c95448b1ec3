"""What `artifact://` and `local://` stand for: files of the store."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Final

from nacre.caller import Resolved, Resolver
from nacre.events import Stream
from nacre.plan import MakeDirectory, MakeFile
from nacre.store import reading
from nacre.store.home import home
from nacre.store.journal import key

_DEEPEST: Final = 64


def resolvers(workspace: bytes) -> Mapping[str, Resolver]:
    """The schemes that work out of the box, for callers of this workspace."""
    return {"artifact": partial(_artifact, workspace), "local": partial(_local, workspace)}


def _artifact(workspace: bytes, rest: str) -> Resolved:
    """The whole output of run N. One that is in the journal becomes a file first."""
    try:
        run = reading.find(reading.number(rest), workspace)
        run.check(Stream.OUTPUT)
    except OSError as error:
        raise LookupError(str(error)) from None
    path, small = os.fsencode(run.path(Stream.OUTPUT)), run.small(Stream.OUTPUT)
    if small is None:
        return Resolved(path=path)
    return Resolved(path=path, chores=(MakeFile(path=path, data=small),))


def _local(workspace: bytes, rest: str) -> Resolved:
    """A file of the workspace's own, kept with the state and not in the workspace."""
    if rest.count("/") > _DEEPEST:
        raise LookupError(f"is more than {_DEEPEST} directories deep; choose a shorter path")
    root = os.fsencode(_home()) + f"/local/{key(workspace)}".encode()
    path = os.path.normpath(root + b"/" + os.fsencode(rest))
    real = os.path.realpath(path)
    if not (real + b"/").startswith(os.path.realpath(root) + b"/"):
        raise LookupError("leads out of its place through a symbolic link; remove the link")
    return Resolved(path=path, chores=(MakeDirectory(path=os.path.dirname(path)),))


def _home() -> str:
    try:
        return home()
    except OSError as error:
        raise LookupError(str(error)) from None
