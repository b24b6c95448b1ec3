"""What goes over the socket: typed frames, each a length of four bytes and a msgpack map.

    → Hello                     ← Welcome, or Problem
    → Asked(id, ask)            ← Heard(id, event)…, Answered(id, answer)
    → Cancel(id), More(id), Enough(id), Adopt (with descriptors), Retire
                                ← Leaving

The first frame each way says which protocol is spoken. Unknown fields are passed over, so a field
may be added without a new number; a frame that the other side cannot know needs one, and so does
what must not be passed over, such as the session of a plan (3). Frames are small values: the same
ones can go through a pipe, or to another machine. Only `Adopt` cannot.
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

PROTOCOL: Final = 3
OLDEST_PROTOCOL: Final = 1  # that we still speak
MAX_FRAME: Final = 64 * 1024 * 1024
MAX_KEPT: Final = 16 * 1024 * 1024  # of each stream of a run, to fit into an answer


class Hello(Struct, frozen=True, kw_only=True, tag="Hello"):
    protocol: int
    version: str  # of nacre


class Welcome(Struct, frozen=True, kw_only=True, tag="Welcome"):
    protocol: int
    oldest: int
    version: str
    pid: int
    runs: int = 0  # that live


class RequestFrame(Struct, frozen=True, tag="Asked", rename={"request": "ask"}):
    id: int  # chosen by the client; once in a connection
    request: Request


class Cancel(Struct, frozen=True, tag="Cancel"):
    """Call off what was asked."""

    id: int
    signal: SignalNumber


class Credit(Struct, frozen=True, tag="More"):
    """So many bytes have been heard: as many more may come."""

    id: int
    count: int


class DetachNow(Struct, frozen=True, tag="Enough"):
    """Wait no longer for what was asked: answer now, and let it go on. (Since protocol 2.)"""

    id: int


class Adopt(Struct, frozen=True, kw_only=True, tag="Adopt"):
    """Here are the pipes of what a run of mine has left running: read them from now on."""

    id: int = 0
    run: str
    workspace: bytes
    streams: tuple[Stream, ...]  # one descriptor comes along for each
    limit: int


class Retire(Struct, frozen=True, tag="Retire"):
    """Give up your place to a newer one; see to what you have until it has ended."""


class ResponseFrame(Struct, frozen=True, tag="Answered", rename={"response": "answer"}):
    id: int
    response: Response


class EventFrame(Struct, frozen=True, tag="Heard"):
    id: int
    event: Started | Chunk


class Leaving(Struct, frozen=True, tag="Leaving"):
    """I go. What you have asked and I have not answered was not done: ask the next one."""


class Problem(Struct, frozen=True, tag="Problem"):
    """I cannot understand you; this connection ends here."""

    text: str


FromClient = Hello | RequestFrame | Cancel | Credit | DetachNow | Adopt | Retire
FromWarden = Welcome | ResponseFrame | EventFrame | Leaving | Problem

_encode = msgspec.msgpack.Encoder().encode
_LENGTH: Final = struct.Struct("!I")


def encode_frame(frame: FromClient | FromWarden) -> bytes:
    """Raises OverflowError for one that is too long."""
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
    """Raises msgspec.MsgspecError for nonsense."""
    return _client_decoder().decode(data)


def decode_warden_frame(data: bytes) -> FromWarden:
    return _warden_decoder().decode(data)


class FrameTooLong(Exception):
    """Whoever announces such a frame is not one of us."""


class FrameBuffer:
    """Bytes as they come, frames as they are complete."""

    def __init__(self, longest: int = MAX_FRAME) -> None:
        self.ended = False  # the other end has said all, and closed
        # Filled by `extend`, in C: what was received is here, whatever interrupts us.
        self.pieces: deque[bytes] = deque()
        self._longest = longest
        self._buffer = b""

    def frames(self) -> Iterator[bytes]:
        """Those that are complete. One is forgotten when the next one is asked for. Raises
        FrameTooLong before anything of such a frame is kept."""
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
        """Many small pieces of a large frame are joined once it may be complete."""
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
