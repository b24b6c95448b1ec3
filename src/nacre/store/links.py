"""What `artifact://` and `local://` stand for: files of the store."""

import os
from collections.abc import Mapping
from functools import partial

from nacre.caller import Resolved, Resolver
from nacre.events import Stream
from nacre.plan import MakeDirectory, MakeFile
from nacre.store import reading
from nacre.store.home import home
from nacre.store.journal import key


def resolvers(cwd: bytes) -> Mapping[str, Resolver]:
    """The schemes that work out of the box, for a caller who stands there."""
    return {"artifact": partial(_artifact, cwd), "local": partial(_local, cwd)}


def _artifact(cwd: bytes, rest: str) -> Resolved:
    """The whole output of run N. One that is in the journal becomes a file first."""
    try:
        run = reading.find(reading.number(rest), workspace(cwd))
        run.open().close()
    except OSError as error:
        raise LookupError(str(error)) from None
    path, kept = os.fsencode(run.path(Stream.OUTPUT)), run.stored(Stream.OUTPUT)
    if kept is None or kept.data is None:
        return Resolved(path=path)
    return Resolved(path=path, chores=(MakeFile(path=path, data=kept.data),))


def _local(cwd: bytes, rest: str) -> Resolved:
    """A file of the workspace's own, kept with the state and not in the workspace."""
    root = os.fsencode(_home()) + f"/local/{key(workspace(cwd))}".encode()
    path = os.path.normpath(root + b"/" + os.fsencode(rest))
    real = os.path.realpath(path)
    if not (real + b"/").startswith(os.path.realpath(root) + b"/"):
        raise LookupError("leads out of its place through a symbolic link; remove the link")
    return Resolved(path=path, chores=(MakeDirectory(path=os.path.dirname(path)),))


def workspace(cwd: bytes) -> bytes:
    """The git top level of a directory, else the directory itself."""
    at = cwd
    while True:
        if os.path.lexists(at + b"/.git"):
            return at
        above = os.path.dirname(at)
        if above == at:
            return cwd
        at = above


def _home() -> str:
    try:
        return home()
    except OSError as error:
        raise LookupError(str(error)) from None
