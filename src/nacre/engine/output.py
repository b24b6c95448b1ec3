"""The streams of one command, on their way from its pipes to where they are kept and heard."""

from functools import partial
from typing import TYPE_CHECKING, Final

from nacre.capture.sink import Sink
from nacre.engine.relay import Hearing
from nacre.events import Stream
from nacre.loop import Call, Loop
from nacre.outcome import Capture
from nacre.plan import AtLimit, Plan
from nacre.process.child import Child
from nacre.process.pipes import Growth, Reader

if TYPE_CHECKING:  # whoever runs without a store need not load it
    from nacre.store.record import Record

# One wake-up reads at most so often before the others have their turn.
_READS: Final = 8
# So many reads take all that a pipe can hold; a flood that outlives its shell has no end.
_FULL_PIPE: Final = 64


def _nobody() -> None:
    """There is nobody to be told."""


class _Channel:
    """One stream: where it is read and where that goes."""

    __slots__ = ("reader", "sink", "stream")

    def __init__(self, stream: Stream, reader: Reader, sink: Sink) -> None:
        self.stream = stream
        self.reader = reader
        self.sink = sink


def _sink(plan: Plan, record: "Record | None", stream: Stream) -> Sink:
    return Sink(plan.keep, plan.spill, None if record is None else partial(record.open, stream))


class Output:
    _listens = False
    _patient = True  # the command may be made to wait for its listener
    _skips = False  # what is too much for the listener is not kept for it

    def __init__(
        self,
        shell: Child,
        plan: Plan,
        loop: Loop,
        growth: Growth,
        relay: Hearing | None,
        record: "Record | None",
        *,
        dry: Call,
        full: Call,
    ) -> None:
        """`dry` is called when we listen and the last stream has ended, `full` when the disk limit
        is reached and shall end the command."""
        self._loop = loop
        self._relay = relay
        self._dry = dry
        self._full = full
        self._at_limit = AtLimit.GO_ON if plan.spill is None else plan.spill.then
        output = Reader(shell.output, growth)
        channels = [_Channel(Stream.OUTPUT, output, _sink(plan, record, Stream.OUTPUT))]
        if shell.errors is not None:
            errors = Reader(shell.errors, growth)
            channels.append(_Channel(Stream.ERRORS, errors, _sink(plan, record, Stream.ERRORS)))
        self._channels = channels
        self._open = channels[:]  # those that have not ended

    @property
    def ended(self) -> bool:
        return not self._open

    def pipes(self) -> frozenset[int]:
        """The inodes of the pipes that have not ended."""
        return frozenset(channel.reader.inode for channel in self._open)

    def listen(self) -> None:
        """Be woken by the pipes from now on."""
        if not self._listens:
            self._listens = True
            for channel in self._open:
                self._loop.watch(channel.reader.fd, partial(self._hear, channel))

    def hurry(self) -> None:
        """Read without regard for the listener: a child blocked on a full pipe never gets to its
        handler."""
        self._patient = False
        self._skips = True
        self.listen()

    def drain(self) -> None:
        """Read all that the shell has written, which is in the pipes when it is gone; others may
        still write, and then we go on listening."""
        self._patient = False
        for channel in self._open[:]:
            self._read(channel, _FULL_PIPE)
        if self._open:
            self._skips = True
            self.listen()

    def to_disk(self) -> list[Capture]:
        """Have all of it in files from now on; returns what there was in memory."""
        return [channel.sink.to_disk() for channel in self._channels]

    def tee(self) -> None:
        """Have all of it in files as well."""
        for channel in self._channels:
            channel.sink.tee()

    @property
    def size(self) -> int:
        """Bytes that were read so far."""
        return sum(channel.sink.size for channel in self._channels)

    def so_far(self) -> list[Capture]:
        return [channel.sink.so_far() for channel in self._channels]

    def owe(self, words: bytes) -> None:
        """Words of ours that will stand at the end of the file, once we settle."""
        self._channels[0].sink.owe(words)

    def settle(self) -> None:
        self._channels[0].sink.settle()

    def close(self) -> list[Capture]:
        """What each stream has said. Whoever made us is free of us then."""
        self._dry = self._full = _nobody
        return [channel.sink.close() for channel in self._channels]

    def let_go(self) -> dict[Stream, Reader]:
        """The pipes that somebody else still holds; they are no longer ours to read."""
        left = {channel.stream: channel.reader for channel in self._open}
        for reader in left.values():
            self._loop.forget(reader.fd)
        self._open = []
        return left

    def _hear(self, channel: _Channel) -> None:
        self._read(channel, _READS)
        if not self._open:
            self._dry()

    def _read(self, channel: _Channel, most: int) -> None:
        """Take what is there, at most so many pieces."""
        read, take, relay = channel.reader.read, channel.sink.take, self._relay
        for _ in range(most):
            data = read()
            if not data:
                if data is not None:
                    self._end(channel)
                return
            take(data)
            if relay is not None:
                relay.chunk(channel.stream, data, may_skip=self._skips)
            if channel.sink.at_limit and self._limit(channel):
                return
            if relay is not None and self._patient and relay.full:
                self._pause()
                return

    def _limit(self, channel: _Channel) -> bool:
        """The disk has all it may keep of this. True when there is nothing more to be read."""
        if self._at_limit is AtLimit.STOP:
            self._at_limit = AtLimit.GO_ON
            self._full()
        if self._at_limit is not AtLimit.CLOSE:
            return False
        self._end(channel)
        return True

    def _end(self, channel: _Channel) -> None:
        if self._listens:
            self._loop.forget(channel.reader.fd)
        self._open.remove(channel)
        channel.reader.close()

    def _pause(self) -> None:
        """Let the command wait for its listener, as it would for a slow pipe."""
        self._listens = False
        for channel in self._open:
            self._loop.forget(channel.reader.fd)
