"""Frames of the warden's socket protocol: a length of four bytes, then a msgpack map.

    → Hello                     ← Welcome, or Problem
    → Asked(id, ask)            ← Heard(id, event)…, Answered(id, answer)
    → Cancel(id), More(id), Enough(id), Adopt (with descriptors), Retire
                                ← Leaving

The first frame in each direction is the handshake: it says which protocol version its sender uses.
Unknown fields of a frame are ignored, so a field can be added without a new protocol version. A new
protocol version is needed for a new kind of frame, and for a field that must not be ignored, such
as the session of a plan (version 3), or the fixed directory of a session (version 4). Frames are
plain data, so they can also go through a pipe or to another machine; only the frame `Adopt` needs
the socket, because it passes descriptors.
"""

import struct
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from nacre.model.events import Chunk, Started, Stream
from nacre.model.requests import Request, Response, SignalNumber

PROTOCOL: Final = 4
OLDEST_PROTOCOL: Final = 1  # oldest protocol version that this nacre still accepts
MAX_FRAME: Final = 64 * 1024 * 1024  # maximum frame size in bytes
# Maximum bytes kept of each output stream of a run, so that the output fits into one frame.
MAX_KEPT: Final = 16 * 1024 * 1024


class Hello(Struct, frozen=True, kw_only=True, tag="Hello"):
    protocol: int
    version: str  # version of nacre in the client process


class Welcome(Struct, frozen=True, kw_only=True, tag="Welcome"):
    protocol: int
    oldest: int
    version: str
    pid: int
    runs: int = 0  # number of the warden's runs that have not ended


class RequestFrame(Struct, frozen=True, tag="Asked", rename={"request": "ask"}):
    id: int  # request id, chosen by the client and unique in its connection
    request: Request


class Cancel(Struct, frozen=True, tag="Cancel"):
    """Client frame: asks the warden to cancel a request; `signal` is the first signal that the
    warden sends to the request's run."""

    id: int
    signal: SignalNumber


class Credit(Struct, frozen=True, tag="More"):
    """Client frame: the client has room for `count` more bytes of a run's output."""

    id: int
    count: int


class DetachNow(Struct, frozen=True, tag="Enough"):
    """Client frame: asks the warden to respond to a request now and to let the request's run
    continue (since protocol version 2)."""

    id: int


class Adopt(Struct, frozen=True, kw_only=True, tag="Adopt"):
    """Client frame with descriptors: the pipes of a run's leftover processes, which the warden
    reads from now on."""

    id: int = 0
    run: str
    workspace: bytes
    # output streams of the run whose pipes are passed, in the order of the passed descriptors
    streams: tuple[Stream, ...]
    limit: int


class Retire(Struct, frozen=True, tag="Retire"):
    """Client frame: asks the warden to give up its lock and its public socket to a newer warden.

    A warden that has given up its lock and its public socket (a retired warden) keeps serving its
    own runs until they have ended.
    """


class ResponseFrame(Struct, frozen=True, tag="Answered", rename={"response": "answer"}):
    id: int
    response: Response


class EventFrame(Struct, frozen=True, tag="Heard"):
    id: int
    event: Started | Chunk


class Leaving(Struct, frozen=True, tag="Leaving"):
    """Warden frame: its sender is about to exit, or has retired in favor of a newer warden.

    If the warden sends the frame `Leaving` before it has responded to a request, it has not carried
    out the request, and the client sends the request to the next warden.
    """


class Problem(Struct, frozen=True, tag="Problem"):
    """Warden frame: the client sent something invalid, and the warden closes the connection."""

    text: str


FromClient = Hello | RequestFrame | Cancel | Credit | DetachNow | Adopt | Retire
FromWarden = Welcome | ResponseFrame | EventFrame | Leaving | Problem

_encode = msgspec.msgpack.Encoder().encode
_LENGTH: Final = struct.Struct("!I")


def encode_frame(frame: FromClient | FromWarden) -> bytes:
    """Encode a frame as bytes, with its length prefix. Raises OverflowError if the frame is too
    long."""
    data = _encode(frame)
    if len(data) > MAX_FRAME:
        raise OverflowError(f"a frame of {len(data)} bytes is too long; {MAX_FRAME} are the most")
    return _LENGTH.pack(len(data)) + data


@lru_cache(maxsize=1)
def _client_decoder() -> msgspec.msgpack.Decoder[FromClient]:
    return msgspec.msgpack.Decoder(FromClient)


@lru_cache(maxsize=1)
def _warden_decoder() -> msgspec.msgpack.Decoder[FromWarden]:
    return msgspec.msgpack.Decoder(FromWarden)


def decode_client_frame(data: bytes) -> FromClient:
    """Decode a frame from a client. Raises msgspec.MsgspecError for an invalid frame."""
    return _client_decoder().decode(data)


def decode_warden_frame(data: bytes) -> FromWarden:
    return _warden_decoder().decode(data)


class FrameTooLong(Exception):
    """Error for a received frame above the size limit. The sender of a frame above the size limit
    does not use the socket protocol of the warden (nacre's daemon)."""


class FrameBuffer:
    """Buffer that takes received bytes and yields complete frames."""

    def __init__(self, longest: int = MAX_FRAME) -> None:
        self.ended = False  # EOF was received: the other end has closed the connection
        # Received bytes; `extend` fills this deque in C, so an interrupt (Ctrl-C) loses no data.
        self.pieces: deque[bytes] = deque()
        self._longest = longest
        self._buffer = b""

    def frames(self) -> Iterator[bytes]:
        """Yield the complete frames that were received.

        A frame stays in the buffer until the caller asks for the next frame. Raises FrameTooLong as
        soon as the length prefix of a frame above the size limit has arrived.
        """
        while True:
            self._join_pieces()
            buffered = self._buffer
            if len(buffered) < _LENGTH.size:
                return
            (length,) = _LENGTH.unpack_from(buffered)
            if length > self._longest:
                raise FrameTooLong(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(buffered) < end:
                return
            yield buffered[_LENGTH.size : end]
            self._buffer = buffered[end:]

    def _join_pieces(self) -> None:
        """Join the received pieces of bytes into one buffer, once they may contain a complete
        frame."""
        if not self.pieces:
            return
        if not self.pieces[-1]:
            self.ended = True
        if len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            there = len(self._buffer) + sum(map(len, self.pieces))
            if there < _LENGTH.size + min(length, self._longest):
                return
        self._buffer = b"".join((self._buffer, *self.pieces))
        self.pieces.clear()
