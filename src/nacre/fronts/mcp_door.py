"""Where an MCP server listens, and whom it lets in: nothing here needs the SDK."""

import os
import secrets
from typing import Final

from msgspec import Struct

from nacre.store.home import open_private, safe_home

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class Address(Struct, frozen=True, kw_only=True):
    """Where, and whom to let in."""

    host: str = "127.0.0.1"
    port: int
    token: str | None  # None: everybody
    hosts: tuple[str, ...] = ()  # other names of this server
    origins: tuple[str, ...] = ()  # of pages that may call

    @property
    def local(self) -> bool:
        return self.host in _LOOPBACK

    @property
    def names(self) -> list[str]:
        """What may stand in the header Host, with any port: a page in a browser could else call us
        under a name of its own."""
        return [*(bracketed(host) for host in (*_LOOPBACK, self.host)), *self.hosts]

    @property
    def pages(self) -> list[str]:
        """And in Origin."""
        schemes = ("http", "https")
        return [f"{scheme}://{name}" for name in self.names for scheme in schemes]


def address(given: str, *, token: str | None, hosts: list[str], origins: list[str]) -> Address:
    """`8765`, `HOST:8765`, `[::1]:8765`. Raises ValueError."""
    host, _, port = given.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--http {given} has no port; write --http 8765, or HOST:8765")
    found = Address(
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        token=token,
        hosts=tuple(hosts),
        origins=tuple(origins),
    )
    if token is None and not found.local:
        raise ValueError(f"--no-token is for this machine only, and {host} is not; leave it out")
    return found


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def token_of(file: str | None) -> tuple[str, str]:
    """The token, and the file that has it: this one, or one of our own, which is made when it is
    missing. Raises OSError, ValueError."""
    path = file or f"{safe_home()}/mcp.token"
    if file is None and not os.path.exists(path):
        made = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(made, "w") as new:
            new.write(f"{secrets.token_urlsafe(32)}\n")
    with open(path) as known:
        if os.fstat(known.fileno()).st_mode & 0o077:
            raise ValueError(f"{path} can be read by others; chmod 600 it")
        token = known.read().strip()
    if not token or not token.isascii() or any(each.isspace() for each in token):
        raise ValueError(f"{path} has no token; write one line of letters and digits into it")
    return token, path
