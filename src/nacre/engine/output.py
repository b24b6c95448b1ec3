"""The streams of one command, on their way from its pipes to where they are kept and heard."""

from functools import partial
from typing import TYPE_CHECKING, Final

from nacre.capture.sink import Sink
from nacre.engine.listener_thread import EventSink
from nacre.eventloop import Callback, EventLoop
from nacre.model.events import Stream
from nacre.model.outcome import Capture
from nacre.model.plan import AtLimit, Plan
from nacre.process.pipe_reader import PipeGrowth, PipeReader
from nacre.process.spawner import Child

if TYPE_CHECKING:  # whoever runs without a store need not load it
    from nacre.store.run_record import RunRecord

# One wake-up reads at most so often before the others have their turn.
_MAX_READS: Final = 8
# So many reads take all that a pipe can hold; a flood that outlives its shell has no end.
_FULL_PIPE: Final = 64


def _do_nothing() -> None:
    """There is nobody to be told."""


class _Channel:
    """One stream: where it is read and where that goes."""

    __slots__ = ("reader", "sink", "stream")

    def __init__(self, stream: Stream, reader: PipeReader, sink: Sink) -> None:
        self.stream = stream
        self.reader = reader
        self.sink = sink


def _build_sink(plan: Plan, record: "RunRecord | None", stream: Stream) -> Sink:
    return Sink(
        plan.keep, plan.spill, None if record is None else partial(record.open_stream, stream)
    )


class Output:
    # Class-level defaults: see `engine.run.Run`.
    _watching = False
    _backpressure = True  # the command may be made to wait for its listener
    _may_skip = False  # what is too much for the listener is not kept for it

    def __init__(
        self,
        shell: Child,
        plan: Plan,
        loop: EventLoop,
        growth: PipeGrowth,
        event_sink: EventSink | None,
        record: "RunRecord | None",
        *,
        on_end: Callback,
        on_disk_limit: Callback,
    ) -> None:
        """`on_end` is called when the last watched stream has ended, `on_disk_limit` when the disk
        limit is reached and ends the command."""
        self._loop = loop
        self._event_sink = event_sink
        self._on_end = on_end
        self._on_disk_limit = on_disk_limit
        self._at_limit = AtLimit.GO_ON if plan.spill is None else plan.spill.then
        output = PipeReader(shell.output, growth)
        channels = [_Channel(Stream.OUTPUT, output, _build_sink(plan, record, Stream.OUTPUT))]
        if shell.errors is not None:
            errors = PipeReader(shell.errors, growth)
            channels.append(
                _Channel(Stream.ERRORS, errors, _build_sink(plan, record, Stream.ERRORS))
            )
        self._channels = channels
        self._open = channels[:]  # those that have not ended

    @property
    def ended(self) -> bool:
        return not self._open

    def pipes(self) -> frozenset[int]:
        """The inodes of the pipes that have not ended."""
        return frozenset(channel.reader.inode for channel in self._open)

    def watch(self) -> None:
        """Be woken by the pipes from now on."""
        if not self._watching:
            self._watching = True
            for channel in self._open:
                self._loop.watch(channel.reader.fd, partial(self._on_readable, channel))

    def read_without_backpressure(self) -> None:
        """Read without regard for the listener: a child blocked on a full pipe never gets to its
        handler."""
        self._backpressure = False
        self._may_skip = True
        self.watch()

    def drain(self) -> None:
        """Read all that the shell has written, which is in the pipes when it is gone; others may
        still write, and then we go on listening."""
        self._backpressure = False
        for channel in self._open[:]:
            self._read(channel, _FULL_PIPE)
        if self._open:
            self._may_skip = True
            self.watch()

    def move_to_disk(self) -> list[Capture]:
        """Have all of it in files from now on; returns what there was in memory."""
        return [channel.sink.move_to_disk() for channel in self._channels]

    def copy_to_disk(self) -> None:
        """Have all of it in files as well."""
        for channel in self._channels:
            channel.sink.copy_to_disk()

    @property
    def size(self) -> int:
        """Bytes that were read so far."""
        return sum(channel.sink.size for channel in self._channels)

    def captures_so_far(self) -> list[Capture]:
        return [channel.sink.capture_so_far() for channel in self._channels]

    def add_completion_line(self, words: bytes) -> None:
        """Words of ours that will stand at the end of the file, once we settle."""
        self._channels[0].sink.add_completion_line(words)

    def write_completion_line(self) -> None:
        self._channels[0].sink.write_completion_line()

    def close(self) -> list[Capture]:
        """What each stream has said. Whoever made us is free of us then."""
        self._on_end = self._on_disk_limit = _do_nothing
        return [channel.sink.close() for channel in self._channels]

    def release_pipes(self) -> dict[Stream, PipeReader]:
        """The pipes that somebody else still holds; they are no longer ours to read."""
        left = {channel.stream: channel.reader for channel in self._open}
        for reader in left.values():
            self._loop.unwatch(reader.fd)
        self._open = []
        return left

    def _on_readable(self, channel: _Channel) -> None:
        self._read(channel, _MAX_READS)
        if not self._open:
            self._on_end()

    def _read(self, channel: _Channel, most: int) -> None:
        """Take what is there, at most so many pieces."""
        read, take, relay = channel.reader.read, channel.sink.write, self._event_sink
        for _ in range(most):
            data = read()
            if not data:
                if data is not None:
                    self._end(channel)
                return
            take(data)
            if relay is not None:
                relay.on_chunk(channel.stream, data, may_skip=self._may_skip)
            if channel.sink.at_limit and self._on_limit(channel):
                return
            if relay is not None and self._backpressure and relay.full:
                self._pause()
                return

    def _on_limit(self, channel: _Channel) -> bool:
        """The disk has all it may keep of this. True when there is nothing more to be read."""
        if self._at_limit is AtLimit.STOP:
            self._at_limit = AtLimit.GO_ON
            self._on_disk_limit()
        if self._at_limit is not AtLimit.CLOSE:
            return False
        self._end(channel)
        return True

    def _end(self, channel: _Channel) -> None:
        if self._watching:
            self._loop.unwatch(channel.reader.fd)
        self._open.remove(channel)
        channel.reader.close()

    def _pause(self) -> None:
        """Let the command wait for its listener, as it would for a slow pipe."""
        self._watching = False
        for channel in self._open:
            self._loop.unwatch(channel.reader.fd)
