"""What `artifact://` and `local://` stand for: files of the store."""

import os
from collections.abc import Mapping
from functools import partial

from nacre.caller import Resolved, Resolver
from nacre.plan import MakeDirectory
from nacre.store.home import home


def resolvers(cwd: bytes) -> Mapping[str, Resolver]:
    """The schemes that work out of the box, for a caller who stands there."""
    return {"artifact": _artifact, "local": partial(_local, cwd)}


def _artifact(rest: str) -> Resolved:
    """The whole output of run N."""
    number = rest.rstrip("/").removeprefix("r")
    if not (number.isascii() and number.isdigit()):
        raise LookupError("is no run; write its number, as in artifact://17")
    path = f"{_home()}/runs/r{int(number)}/output"
    if not os.path.isfile(path):
        raise LookupError("there is no such run here, or its output was swept")
    return Resolved(path=os.fsencode(path))


def _local(cwd: bytes, rest: str) -> Resolved:
    """A file of the workspace's own, kept with the state and not in the workspace."""
    root = os.fsencode(_home()) + b"/local/" + _key(workspace(cwd))
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


def _key(path: bytes) -> bytes:
    from hashlib import blake2b  # takes its time, and few commands need it

    return blake2b(path, digest_size=8).hexdigest().encode()


def _home() -> str:
    try:
        return home()
    except OSError as error:
        raise LookupError(str(error)) from None
