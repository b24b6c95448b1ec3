"""Request ids: a name by which the same command is never run twice.

    requests/<workspace>/<name>

A name is claimed, before anything runs, by making its file: of several who try only one can. It
says which run was made, of what, and by whom. A claim counts for as long as its run is remembered;
one whose maker died before the run was begun is taken over by the next who asks.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from nacre.asks import Request
from nacre.digest import digest
from nacre.store import journal, owner
from nacre.store.home import home, open_private, private_directory, safe_home
from nacre.store.record import runs


class Claim(Struct, frozen=True, kw_only=True):
    id: str  # for people who look
    run: int
    digest: str
    owner: str  # who was about to begin it


def claim(request: Request, workspace: bytes, run: int, kind: owner.Kind) -> Claim:
    """The claim that holds: ours, for this run, or one that was made before. Raises OSError."""
    path = _path(request.id, workspace)
    mine = Claim(id=request.id, run=run, digest=request.digest, owner=owner.me(kind))
    private_directory(os.path.dirname(path))
    draft = f"{path}.{os.getpid()}.{run}"
    with os.fdopen(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(msgspec.json.encode(mine))
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
            return mine
        with _alone(os.path.dirname(path)):
            there = _read(path)
            if there is not None and (there.run == run or _counts(there, workspace)):
                return there
            os.rename(draft, path)  # nobody else takes it over, or makes it, meanwhile
            return mine
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


@contextmanager
def _alone(directory: str) -> Iterator[None]:
    """Nobody else is here at the same time. Raises OSError."""
    fd = open_private(f"{directory}/.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def release(request: Request, workspace: bytes, run: int) -> None:
    """Nothing was run: whoever asks again may."""
    with suppress(OSError):
        path = _path(request.id, workspace)
        with _alone(os.path.dirname(path)):
            there = _read(path)
            if there is not None and there.run == run:
                os.unlink(path)


def forget_old(before: float, seconds: float) -> None:
    """Those that are older, and whose runs were swept. What there is no time for is left for the
    next one who looks."""
    end = time.monotonic() + seconds
    with suppress(OSError), os.scandir(f"{home()}/requests") as places:
        for place in places:
            with os.scandir(place.path) as entries:
                for entry in entries:
                    if time.monotonic() > end:
                        return
                    if entry.stat().st_mtime < before and not _is_kept(entry.path, place.name):
                        os.unlink(entry.path)


def _is_kept(path: str, place: str) -> bool:
    """Whether anything of its run may still be there: looking closer takes too long."""
    there, at = _read(path), home()
    if there is None:
        return False
    directory = f"{runs(at)}/r{there.run}"
    return os.path.exists(journal.path_of(at, place, there.run)) or os.path.exists(directory)


def _is_remembered(run: int, place: str) -> bool:
    at = home()
    return os.path.exists(f"{runs(at)}/r{run}/plan") or (
        journal.find(at, place, run)[0] is not None
    )


def _counts(there: Claim, workspace: bytes) -> bool:
    if _is_remembered(there.run, journal.key(workspace)):
        return True
    maker = owner.read(there.owner)  # who may be just about to
    return maker is not None and maker.lives


def _path(name: str, workspace: bytes) -> str:
    place, file = journal.key(workspace), digest(name.encode("utf-8", "surrogatepass"), 16)
    return f"{safe_home()}/requests/{place}/{file}"


def _read(path: str) -> Claim | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Claim)
    except (OSError, msgspec.MsgspecError):
        return None
