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

from nacre.asks import Ask, Reached, SignalNumber
from nacre.events import Chunk, Started, Stream

PROTOCOL: Final = 3
OLDEST: Final = 1  # that we still speak
LONGEST: Final = 64 * 1024 * 1024
MOST_KEPT: Final = 16 * 1024 * 1024  # of each stream of a run, to fit into an answer


class Hello(Struct, frozen=True, kw_only=True, tag="Hello"):
    protocol: int
    version: str  # of nacre


class Welcome(Struct, frozen=True, kw_only=True, tag="Welcome"):
    protocol: int
    oldest: int
    version: str
    pid: int
    runs: int = 0  # that live


class Asked(Struct, frozen=True, tag="Asked"):
    id: int  # chosen by the client; once in a connection
    ask: Ask


class Cancel(Struct, frozen=True, tag="Cancel"):
    """Call off what was asked."""

    id: int
    signal: SignalNumber


class More(Struct, frozen=True, tag="More"):
    """So many bytes have been heard: as many more may come."""

    id: int
    count: int


class Enough(Struct, frozen=True, tag="Enough"):
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


class Answered(Struct, frozen=True, tag="Answered"):
    id: int
    answer: Reached


class Heard(Struct, frozen=True, tag="Heard"):
    id: int
    event: Started | Chunk


class Leaving(Struct, frozen=True, tag="Leaving"):
    """I go. What you have asked and I have not answered was not done: ask the next one."""


class Problem(Struct, frozen=True, tag="Problem"):
    """I cannot understand you; this connection ends here."""

    text: str


FromClient = Hello | Asked | Cancel | More | Enough | Adopt | Retire
FromWarden = Welcome | Answered | Heard | Leaving | Problem

_encode = msgspec.msgpack.Encoder().encode
_LENGTH: Final = struct.Struct("!I")


def packed(frame: FromClient | FromWarden) -> bytes:
    """Raises OverflowError for one that is too long."""
    data = _encode(frame)
    if len(data) > LONGEST:
        raise OverflowError(f"a frame of {len(data)} bytes is too long; {LONGEST} are the most")
    return _LENGTH.pack(len(data)) + data


@lru_cache(maxsize=1)
def _from_client() -> msgspec.msgpack.Decoder[FromClient]:
    return msgspec.msgpack.Decoder(FromClient)


@lru_cache(maxsize=1)
def _from_warden() -> msgspec.msgpack.Decoder[FromWarden]:
    return msgspec.msgpack.Decoder(FromWarden)


def from_client(data: bytes) -> FromClient:
    """Raises MsgspecError for nonsense."""
    return _from_client().decode(data)


def from_warden(data: bytes) -> FromWarden:
    return _from_warden().decode(data)


class TooLong(Exception):
    """Whoever announces such a frame is not one of us."""


class Incoming:
    """Bytes as they come, frames as they are complete."""

    ended = False  # the other end has said all, and closed

    def __init__(self, longest: int = LONGEST) -> None:
        # Filled by `extend`, in C: what was received is here, whatever interrupts us.
        self.pieces: deque[bytes] = deque()
        self._longest = longest
        self._held = b""

    def frames(self) -> Iterator[bytes]:
        """Those that are complete. One is forgotten when the next one is asked for. Raises TooLong
        before anything of such a frame is kept."""
        while True:
            self._join()
            held = self._held
            if len(held) < _LENGTH.size:
                return
            (length,) = _LENGTH.unpack_from(held)
            if length > self._longest:
                raise TooLong(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(held) < end:
                return
            yield held[_LENGTH.size : end]
            self._held = held[end:]

    def _join(self) -> None:
        """Many small pieces of a large frame are joined once it may be complete."""
        if not self.pieces:
            return
        if not self.pieces[-1]:
            self.ended = True
        if len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            there = len(self._held) + sum(map(len, self.pieces))
            if there < _LENGTH.size + min(length, self._longest):
                return
        self._held = b"".join((self._held, *self.pieces))
        self.pieces.clear()
