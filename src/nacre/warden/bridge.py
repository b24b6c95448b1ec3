"""`nacre warden --stdio`: the frames of the socket on stdin and stdout.

For whoever can start a program but not open a socket: `ssh host nacre warden --stdio`. Runs outlive
it as they outlive any client. It only carries bytes; descriptors cannot go that way.
"""

import os
import select
import socket
import sys
import time
from typing import Final

from nacre.warden import door

_PATIENCE: Final = 10.0
_PIECE: Final = 256 * 1024


def bridge() -> int:
    try:
        warden = reached()
    except (OSError, door.NotOurs) as error:
        print(f"nacre: there is no warden: {error}", file=sys.stderr)
        return 1
    with warden:
        warden.setblocking(True)
        _carry(warden)
    return 0


def reached() -> socket.socket:
    """A connection, to one that is started if need be. Raises OSError."""
    found = door.connect()
    if found is not None:
        return found
    ready = door.start()
    try:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            said, _, _ = select.select([ready], [], [], 0.05)
            if (found := door.connect()) is not None:
                return found
            if said and os.read(ready, 1) == b"":
                break
            time.sleep(0.005)
    finally:
        os.close(ready)
    raise OSError(f"it could not be started: {door.complaint() or 'nobody knows why'}")


def _carry(warden: socket.socket) -> None:
    """Both ways, until one of them has ended. Whoever is slow is waited for."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(warden.fileno(), select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                data = os.read(0, _PIECE)
                if not data:
                    return
                warden.sendall(data)
            else:
                data = warden.recv(_PIECE)
                if not data:
                    return
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(1, rest) :]
