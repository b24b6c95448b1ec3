"""Settings of nacre's HTTP server for MCP: its address, accepted host names and access token.

The module `auth` does not import the MCP SDK.
"""

import os
import secrets
from contextlib import suppress
from typing import Final

from msgspec import Struct

from nacre.store.state_dir import open_private, private_state_dir

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_MIN_TOKEN: Final = 16  # minimum length of the access token, in characters


class ListenAddress(Struct, frozen=True, kw_only=True):
    """Address of the HTTP server for MCP, with the access token, host names and origins that it
    accepts."""

    host: str = "127.0.0.1"
    port: int
    token: str | None  # access token; None: the HTTP server requires no token
    # Additional host names under which clients may call the HTTP server.
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()  # origins of web pages that may call the HTTP server

    @property
    def local(self) -> bool:
        return self.host in _LOOPBACK

    @property
    def names(self) -> list[str]:
        """Host names that the Host header of a request may contain, each with any port.

        Without a check of the Host header, a web page could call the server under the page's own
        host name (DNS rebinding).
        """
        return [*(bracket_ipv6(host) for host in (*_LOOPBACK, self.host)), *self.hosts]

    def allows_host(self, host: str) -> bool:
        return (
            host.casefold() in self._known_names
            or _strip_port(host).casefold() in self._known_names
        )

    def allows_origin(self, origin: str) -> bool:
        """Return whether web pages of the given origin may call the HTTP server."""
        if origin in self.origins:
            return True
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and self.allows_host(host)

    @property
    def _known_names(self) -> set[str]:
        return {name.casefold() for name in self.names}


def _strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host


def parse_address(
    given: str, *, token: str | None, hosts: list[str], origins: list[str]
) -> ListenAddress:
    """Parse the value of `--http`: `8765`, `HOST:8765` or `[::1]:8765`. Raises ValueError."""
    host, _, port = given.rpartition(":")
    if not port.isascii() or not port.isdigit():
        raise ValueError(f"--http {given} has no port; write --http 8765, or HOST:8765")
    if int(port) > 65535:
        raise ValueError(f"--http {given}: a port is at most 65535")
    for each in origins:
        if "://" not in each or each.endswith("/"):
            raise ValueError(
                f"--allow-origin {each} is not an origin; write it like https://page.example"
            )
    for each in hosts:
        if "/" in each:
            raise ValueError(f"--allow-host {each} is not a host name; write it like box.example")
    found = ListenAddress(
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        token=token,
        hosts=tuple(hosts),
        origins=tuple(origins),
    )
    if token is None and not found.local:
        raise ValueError(
            f"--no-token is only allowed on a loopback address, and {host} is not one; leave it out"
        )
    return found


def bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def load_token(file: str | None) -> tuple[str, str]:
    """Return the access token of the HTTP server and the path of the token file.

    If `file` is None, the token file is in the state directory and is created if it does not exist.
    Raises OSError if the token file cannot be read, ValueError if it is missing, not private or has
    no valid token.
    """
    path = file or f"{private_state_dir()}/mcp.token"
    if file is None and not os.path.exists(path):
        _create_token_file(path)
    if not os.path.exists(path):
        raise ValueError(f"{path} does not exist; write a token into it, readable only by you")
    with open(path) as known:
        status = os.fstat(known.fileno())
        if status.st_mode & 0o077 or status.st_uid not in (os.getuid(), 0):
            raise ValueError(
                f"{path} can be read by other users, or belongs to another user; chmod 600 it"
            )
        token = known.read().strip()
    if len(token) < _MIN_TOKEN or not token.isascii() or any(each.isspace() for each in token):
        raise ValueError(
            f"{path} has no token; write one line of {_MIN_TOKEN} or more letters and digits "
            "into it"
        )
    return token, path


def _create_token_file(path: str) -> None:
    """Create the token file atomically, so that several processes that start at the same time use
    the same token."""
    mine = f"{path}.{os.getpid()}"
    with os.fdopen(open_private(mine, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as new:
        new.write(f"{secrets.token_urlsafe(32)}\n")
    with suppress(FileExistsError):
        os.link(mine, path)
    os.unlink(mine)
