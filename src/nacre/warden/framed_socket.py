"""Non-blocking sender and receiver of protocol frames on one end of a socket, for client and
warden.

A frame to send is queued first and then written as far as the socket accepts it. Received bytes are
stored before they are parsed. An interrupt (Ctrl-C in a host) loses no data, because the
interrupted caller then calls `resume` to continue reading and writing.
"""

import os
import socket
import stat
from collections.abc import Callable
from typing import Final

import msgspec

from nacre.eventloop import EventLoop
from nacre.warden.protocol import FrameBuffer, FrameTooLong, FromClient, FromWarden, encode_frame

# Maximum bytes per read; malloc would map and unmap memory for a larger buffer at each read.
_READ_SIZE: Final = 64 * 1024
_ONE_READ: Final = (_READ_SIZE,)
_WRITE_SIZE: Final = 256 * 1024
_FD_SPACE: Final = socket.CMSG_SPACE(16 * 4)
_CLOEXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)


class FramedSocket:
    def __init__(
        self,
        connection: socket.socket,
        loop: EventLoop,
        *,
        on_frame: Callable[[bytes], None],
        on_close: Callable[[str], None],
        takes_descriptors: bool = False,
    ) -> None:
        """Start watching the socket for received frames.

        `on_frame` is called with each received frame. `on_close` is called once when no more frames
        will come, with the reason as text, or with "" if the other end has closed the connection.
        """
        self.open = True
        self._peer_closed = False  # whether a write failed because the other end no longer reads
        self._handling = False
        self._socket = connection
        self._fd = connection.fileno()
        self._inode = os.fstat(self._fd).st_ino
        self._loop = loop
        self._on_frame = on_frame
        self._on_close = on_close
        self._takes_descriptors = takes_descriptors
        self._incoming = FrameBuffer()
        self._outgoing = bytearray()
        self._sent_sizes: list[int] = []  # how many bytes of `_outgoing` each send(2) wrote
        self.descriptors: list[int] = []  # file descriptors received from the other end
        connection.setblocking(False)
        loop.watch(self._fd, self.read)

    @property
    def intact(self) -> bool:
        """Whether the descriptor still refers to this socket; the host program may have closed or
        reused it."""
        try:
            status = os.fstat(self._fd)
        except OSError:
            return False
        return stat.S_ISSOCK(status.st_mode) and status.st_ino == self._inode

    @property
    def unsent(self) -> int:
        return len(self._outgoing) - sum(self._sent_sizes)

    def send(self, frame: FromClient | FromWarden) -> None:
        """Queue a frame and try to write it to the socket. Raises OverflowError if the frame is too
        long."""
        data = encode_frame(frame)
        if not self.open or self._peer_closed:
            return
        if not self._outgoing:
            self._sent_sizes.clear()
        waits = bool(self._outgoing)
        self._outgoing += data
        if not waits:
            self._flush()

    def read(self) -> None:
        """Receive the available bytes from the socket and pass the complete frames to
        `on_frame`."""
        if not self.open:
            return
        try:
            self._receive()
        except BlockingIOError:
            return
        except OSError:
            self._close_with_reason("")
            return
        self.resume()

    def resume(self) -> None:
        """Pass received frames to `on_frame` and write queued frames; also called after an
        interrupt, to continue."""
        if not self.open or self._handling:
            return
        self._handling = True
        try:
            for frame in self._incoming.frames():
                self._on_frame(frame)
                if not self.open:
                    return
        except (FrameTooLong, msgspec.MsgspecError) as error:
            self._close_with_reason(f"invalid frame: {error}")
            return
        finally:
            self._handling = False
        if self._incoming.ended:
            self._close_with_reason("")
        elif self._outgoing:
            self._flush()

    def close(self) -> None:
        if self.open:
            self._flush_once()
            self.open = False
            self._loop.unwatch(self._fd)
            self._socket.close()
        while self.descriptors:
            os.close(self.descriptors.pop())

    def disown(self) -> None:
        """Stop using the socket's descriptor, because the host program has closed it or reused its
        number."""
        self.open = False
        self._socket.detach()

    def after_fork(self) -> None:
        """Close this process's copy of the socket after fork(2), without changing the epoll that
        watches it.

        After fork(2), the connection and the epoll that watches it belong to the parent process.
        """
        if self.open and self.intact:
            self._socket.close()
        elif self.open:
            self._socket.detach()
        self.open = False

    def _receive(self) -> None:
        if not self._takes_descriptors:
            # `map` and `extend` run in C, so an interrupt (Ctrl-C) cannot come between receiving
            # bytes and storing them.
            self._incoming.pieces.extend(map(self._socket.recv, _ONE_READ))
            return
        data, ancillary, _, _ = self._socket.recvmsg(_READ_SIZE, _FD_SPACE, _CLOEXEC)
        for _, _, passed in ancillary:
            self.descriptors += memoryview(passed).cast("i").tolist()
        self._incoming.pieces.append(data)

    def _flush(self) -> None:
        outgoing, sent = self._outgoing, self._sent_sizes
        try:
            while (at := sum(sent)) < len(outgoing):
                # `map` and `extend` run in C, so an interrupt (Ctrl-C) cannot come between sending
                # bytes and counting them, and no bytes are sent twice.
                sent.extend(map(self._socket.send, (bytes(outgoing[at : at + _WRITE_SIZE]),)))
        except BlockingIOError:
            self._loop.watch_writable(self._fd, self._flush)
            return
        except OSError:
            # The process at the other end of the socket no longer reads, but frames that it has
            # sent may still be unread.
            self._peer_closed = True
        outgoing.clear()
        sent.clear()
        self._loop.unwatch_writable(self._fd)

    def _flush_once(self) -> None:
        """Write as much queued data as one non-blocking send(2) takes."""
        if self._outgoing and not self._peer_closed:
            try:
                self._socket.send(bytes(self._outgoing[sum(self._sent_sizes) :]))
            except OSError:
                return

    def _close_with_reason(self, why: str) -> None:
        if self.open:
            self._on_close(why)
            self.close()
