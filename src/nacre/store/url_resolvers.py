"""Functions that return the file path for an internal URL.

`artifact://` and `local://` URLs name files in the state directory; functions of the host resolve
the URLs of other schemes.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from nacre.model.caller import Resolved, Resolver
from nacre.model.events import Stream
from nacre.model.plan import MakeDirectory, MakeFile
from nacre.store import stored_run
from nacre.store.journal import workspace_key
from nacre.store.state_dir import state_dir

_MAX_DEPTH: Final = 64


# Function of a host that returns the path for an internal URL. The function gets the part of the
# URL after `://`, and raises LookupError with a sentence for an unknown URL. A relative path starts
# at the current directory of the host.
HostResolver = Callable[[str], str | bytes | os.PathLike[str]]

_SCHEME: Final = re.compile(r"[a-z]+")
# Schemes of URLs that programs such as curl and git use.
_NOT_INTERNAL: Final = ("http", "https", "ftp", "sftp", "file", "ssh", "git", "data", "ws", "wss")


def build_resolvers(
    workspace: bytes, host_resolvers: Mapping[str, HostResolver] = MappingProxyType({})
) -> Mapping[str, Resolver]:
    """Return the functions that resolve internal URLs, by scheme: the functions of the host, and
    those for the `artifact://` and `local://` URLs of a workspace."""
    return {
        "artifact": partial(_resolve_artifact, workspace),
        "local": partial(_resolve_local, workspace),
        **{scheme: partial(_resolve_in_host, each) for scheme, each in host_resolvers.items()},
    }


def check_resolvers(resolvers: Mapping[str, HostResolver]) -> None:
    """Check the resolvers of a host. Raises ValueError."""
    for scheme, resolver in resolvers.items():
        if not _SCHEME.fullmatch(scheme):
            raise ValueError(f"{scheme!r} cannot be a URL scheme; use the letters a to z")
        if scheme in _NOT_INTERNAL:
            raise ValueError(f"{scheme}:// URLs are not internal; choose another scheme")
        if not callable(resolver):
            raise ValueError(f"the resolver of {scheme}:// is not a function, but {resolver!r}")


def _resolve_in_host(resolver: HostResolver, rest: str) -> Resolved:
    path = os.fsencode(resolver(rest))
    if not path or b"\0" in path:
        raise LookupError("has a resolver that returned no path; correct the resolver")
    return Resolved(path=os.path.abspath(path))


def _resolve_artifact(workspace: bytes, rest: str) -> Resolved:
    """Return the path of the file that contains a run's complete output.

    Short output of a run is stored in the journal and not in a file of its own. A command that uses
    an `artifact://` URL needs a file, so nacre writes short output to a file before the command
    starts.
    """
    try:
        run = stored_run.find_run(stored_run.parse_run_id(rest), workspace)
        run.check_stored(Stream.OUTPUT)
    except OSError as error:
        raise LookupError(str(error)) from None
    path, small = os.fsencode(run.path(Stream.OUTPUT)), run.journal_data(Stream.OUTPUT)
    if small is None:
        return Resolved(path=path)
    return Resolved(path=path, chores=(MakeFile(path=path, data=small),))


def _resolve_local(workspace: bytes, rest: str) -> Resolved:
    """Return the path for a `local://` URL: a file of the workspace that is kept in the state
    directory."""
    if rest.count("/") > _MAX_DEPTH:
        raise LookupError(f"is more than {_MAX_DEPTH} directories deep; choose a shorter path")
    root = os.fsencode(_home()) + f"/local/{workspace_key(workspace)}".encode()
    path = os.path.normpath(root + b"/" + os.fsencode(rest))
    real = os.path.realpath(path)
    if not (real + b"/").startswith(os.path.realpath(root) + b"/"):
        raise LookupError("leads out of its directory through a symbolic link; remove the link")
    return Resolved(path=path, chores=(MakeDirectory(path=os.path.dirname(path)),))


def _home() -> str:
    try:
        return state_dir()
    except OSError as error:
        raise LookupError(str(error)) from None
