"""`nacre warden --stdio`: a bridge process that copies data from its stdin to the warden's socket,
and from the socket to its stdout.

The bridge between a client and the warden is for a client that cannot open a socket but can start a
program, for example `ssh host nacre warden --stdio`. Runs in the warden (nacre's daemon) continue
when the bridge process (`nacre warden --stdio`) exits, as they do when any client disconnects. The
bridge between a client and the warden only copies bytes, so a client cannot pass descriptors to the
warden through the bridge.
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
_CLOSE_LINGER: Final = 300  # milliseconds to wait for more data from the warden after EOF on stdin


def run_bridge() -> int:
    try:
        warden = connect_or_start()
    except (OSError, endpoint.ForeignSocket) as error:
        print(f"nacre: no warden is running: {error}", file=sys.stderr)
        return 1
    with warden, suppress(OSError):  # OSError: the warden or the client has disconnected
        warden.setblocking(True)
        _copy_both_ways(warden)
    return 0


def connect_or_start() -> socket.socket:
    """Connect to the warden, starting one if none runs. Raises OSError, ForeignSocket."""
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
    raise OSError(f"it could not be started: {endpoint.last_log_line() or 'its log is empty'}")


def _copy_both_ways(warden: socket.socket) -> None:
    """Copy stdin to the warden and the warden's data to stdout, until the warden closes the
    connection, or until stdin has ended and the warden sends nothing more."""
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
                    # The warden has closed the connection, but data that it sent is still unread.
                    poll.unregister(0)
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
