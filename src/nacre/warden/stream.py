"""One end of a socket: frames in, frames out, never waiting.

Used by both sides. What is sent is queued first and then written as far as it goes; what is
received is kept before anything is made of it. So an interrupt (Ctrl-C in a host) loses nothing:
whoever is interrupted calls `resume`.
"""

import os
import socket
import stat
from collections.abc import Callable
from typing import Final

import msgspec

from nacre.loop import Loop
from nacre.warden.frames import FromClient, FromWarden, Incoming, TooLong, packed

_READ: Final = 64 * 1024  # more would be mapped and unmapped by malloc, each time
_ONE_READ: Final = (_READ,)
_WRITE: Final = 256 * 1024
_FDS: Final = socket.CMSG_SPACE(16 * 4)
_CLOEXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)


class Stream:
    open = True
    _deaf = False  # the other end does not hear us any more
    _handling = False

    def __init__(
        self,
        made: socket.socket,
        loop: Loop,
        *,
        heard: Callable[[bytes], None],
        gone: Callable[[str], None],
        takes_descriptors: bool = False,
    ) -> None:
        """`heard` gets each frame, `gone` is told once why there will be no more: "" when the other
        end has closed."""
        self._socket = made
        self._fd = made.fileno()
        self._inode = os.fstat(self._fd).st_ino
        self._loop = loop
        self._heard = heard
        self._gone = gone
        self._takes_descriptors = takes_descriptors
        self._incoming = Incoming()
        self._outgoing = bytearray()
        self._sent: list[int] = []  # of what is outgoing
        self.descriptors: list[int] = []  # that came along
        made.setblocking(False)
        loop.watch(self._fd, self.read)

    @property
    def intact(self) -> bool:
        """Whether our socket is still ours: a host may have closed whatever was open."""
        try:
            status = os.fstat(self._fd)
        except OSError:
            return False
        return stat.S_ISSOCK(status.st_mode) and status.st_ino == self._inode

    @property
    def unsent(self) -> int:
        return len(self._outgoing) - sum(self._sent)

    def send(self, frame: FromClient | FromWarden) -> None:
        """Raises OverflowError for a frame that is too long."""
        data = packed(frame)
        if not self.open or self._deaf:
            return
        if not self._outgoing:
            self._sent.clear()
        waits = bool(self._outgoing)
        self._outgoing += data
        if not waits:
            self._write()

    def read(self) -> None:
        """Take what is there, and hand on the frames that are complete."""
        if not self.open:
            return
        try:
            self._receive()
        except BlockingIOError:
            return
        except OSError:
            self._end("")
            return
        self.resume()

    def resume(self) -> None:
        """Go on with what an interrupt has left undone."""
        if not self.open or self._handling:
            return
        self._handling = True
        try:
            for frame in self._incoming.frames():
                self._heard(frame)
                if not self.open:
                    return
        except (TooLong, msgspec.MsgspecError) as error:
            self._end(f"that is no frame: {error}")
            return
        finally:
            self._handling = False
        if self._incoming.ended:
            self._end("")
        elif self._outgoing:
            self._write()

    def close(self) -> None:
        if self.open:
            self._write_last()
            self.open = False
            self._loop.forget(self._fd)
            self._socket.close()
        while self.descriptors:
            os.close(self.descriptors.pop())

    def disown(self) -> None:
        """The number is somebody else's: never touch it again."""
        self.open = False
        self._socket.detach()

    def forked(self) -> None:
        """In a fork: the connection is the parent's, and so is the epoll that watches it."""
        if self.open and self.intact:
            self._socket.close()
        elif self.open:
            self._socket.detach()
        self.open = False

    def _receive(self) -> None:
        if not self._takes_descriptors:
            # In C, from the socket to the deque: no interrupt can lose what was received.
            self._incoming.pieces.extend(map(self._socket.recv, _ONE_READ))
            return
        data, ancillary, _, _ = self._socket.recvmsg(_READ, _FDS, _CLOEXEC)
        for _, _, passed in ancillary:
            self.descriptors += memoryview(passed).cast("i").tolist()
        self._incoming.pieces.append(data)

    def _write(self) -> None:
        outgoing, sent = self._outgoing, self._sent
        try:
            while (at := sum(sent)) < len(outgoing):
                # In C, from the socket to the list: no interrupt has us send anything twice.
                sent.extend(map(self._socket.send, (bytes(outgoing[at : at + _WRITE]),)))
        except BlockingIOError:
            self._loop.await_room(self._fd, self._write)
            return
        except OSError:
            self._deaf = True  # it may have said more before it went
        outgoing.clear()
        sent.clear()
        self._loop.enough_room(self._fd)

    def _write_last(self) -> None:
        """As much as goes without waiting."""
        if self._outgoing and not self._deaf:
            try:
                self._socket.send(bytes(self._outgoing[sum(self._sent) :]))
            except OSError:
                return

    def _end(self, why: str) -> None:
        if self.open:
            self._gone(why)
            self.close()
