"""`nacre warden --stdio`: the frames of the socket on stdin and stdout.

For whoever can start a program but not open a socket: `ssh host nacre warden --stdio`. Runs outlive
it as they outlive any client. It only carries bytes; descriptors cannot go that way.
"""

import os
import select
import socket
import sys
import time
from contextlib import suppress
from typing import Final

from nacre.warden import endpoint

_START_TIMEOUT: Final = 10.0
_READ_SIZE: Final = 256 * 1024
_CLOSE_LINGER: Final = 300  # milliseconds of silence after our own end


def run_bridge() -> int:
    try:
        warden = connect_or_start()
    except (OSError, endpoint.ForeignSocket) as error:
        print(f"nacre: there is no warden: {error}", file=sys.stderr)
        return 1
    with warden, suppress(OSError):  # whichever end is gone, the other need not be told how
        warden.setblocking(True)
        _copy_both_ways(warden)
    return 0


def connect_or_start() -> socket.socket:
    """A connection, to one that is started if need be. Raises OSError."""
    found = endpoint.connect()
    if found is not None:
        return found
    ready = endpoint.start_warden()
    try:
        end, up = time.monotonic() + _START_TIMEOUT, False
        while time.monotonic() < end:
            readable, _, _ = select.select([ready], [], [], 0.05)
            if (found := endpoint.connect()) is not None:
                return found
            if readable and not up:
                up = os.read(ready, 1) == b"1"
                if not up:
                    break
            time.sleep(0.005)
    finally:
        os.close(ready)
    raise OSError(f"it could not be started: {endpoint.last_log_line() or 'nobody knows why'}")


def _copy_both_ways(warden: socket.socket) -> None:
    """Both ways, until the warden hangs up, or our own end does and nothing more comes for it."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(warden.fileno(), select.POLLIN)
    patience: int | None = None
    while ready := poll.poll(patience):
        for fd, _ in ready:
            if fd != 0:
                data = warden.recv(_READ_SIZE)
                if not data:
                    return
                _write_stdout(data)
            elif data := os.read(0, _READ_SIZE):
                if not _try_send(warden, data):
                    poll.unregister(0)  # what it had to say about that is yet to be read
            else:
                poll.unregister(0)
                patience = _CLOSE_LINGER


def _try_send(warden: socket.socket, data: bytes) -> bool:
    try:
        warden.sendall(data)
    except OSError:
        return False
    return True


def _write_stdout(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
