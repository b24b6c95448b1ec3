"""Output streams of one run: reads the pipes, stores the bytes and passes them to the listener."""

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

# `store.run_record` is imported only for type checks, because only a run that is stored needs it.
if TYPE_CHECKING:
    from nacre.store.run_record import RunRecord

# Maximum reads from one pipe per wake-up of the event loop, so that other descriptors get their
# turn.
_MAX_READS: Final = 8
# Number of reads that empties a full pipe; a limit is needed because leftover processes may write
# to the pipe without end.
_FULL_PIPE: Final = 64


def _do_nothing() -> None:
    """Do nothing; this function replaces the callbacks of an `Output` after it is closed."""


class _Channel:
    """One output stream of a run, with the reader of its pipe and the sink that keeps its bytes."""

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
    # The docstring of `engine.run.Run` explains why the attributes of `Output` have class-level
    # defaults.
    _watching = False
    _backpressure = True  # whether reading of output pauses while the listener's buffer is full
    # Whether the oldest output in the listener's buffer is dropped when the buffer is full.
    _may_skip = False

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
        """`on_end` is called when the last output stream that the event loop watches has ended.
        `on_disk_limit` is called when an output file reaches its size limit, if the plan says that
        the limit ends the command."""
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
        self._open = channels[:]  # output streams whose pipe has not reached EOF

    @property
    def ended(self) -> bool:
        return not self._open

    def pipes(self) -> frozenset[int]:
        """Return the inode numbers of the run's output pipes that have not ended."""
        return frozenset(channel.reader.inode for channel in self._open)

    def watch(self) -> None:
        """From now on, read the run's output pipes whenever the event loop reports that they are
        readable."""
        if not self._watching:
            self._watching = True
            for channel in self._open:
                self._loop.watch(channel.reader.fd, partial(self._on_readable, channel))

    def read_without_backpressure(self) -> None:
        """From now on, read the output without waiting for a slow listener.

        A run that is being stopped is read without backpressure, because a program that blocks on
        a full pipe could not finish its TERM handler.
        """
        self._backpressure = False
        self._may_skip = True
        self.watch()

    def drain(self) -> None:
        """Read everything that the run's shell wrote to its pipes before it exited, and go on
        watching the pipes that leftover processes (which outlive the shell) still hold open."""
        self._backpressure = False
        for channel in self._open[:]:
            self._read(channel, _FULL_PIPE)
        if self._open:
            self._may_skip = True
            self.watch()

    def move_to_disk(self) -> list[Capture]:
        """Move the run's output from memory to files, which also get all further output; return a
        `Capture` (kept output and its size) of each stream as it was in memory."""
        return [channel.sink.move_to_disk() for channel in self._channels]

    def copy_to_disk(self) -> None:
        """Write the run's complete output to files, in addition to the part that is kept in
        memory."""
        for channel in self._channels:
            channel.sink.copy_to_disk()

    @property
    def size(self) -> int:
        """Number of output bytes read from the command so far."""
        return sum(channel.sink.size for channel in self._channels)

    def captures_so_far(self) -> list[Capture]:
        return [channel.sink.capture_so_far() for channel in self._channels]

    def add_completion_line(self, words: bytes) -> None:
        """Register the line with which nacre reports the end of the run; `write_completion_line`
        appends this line to the run's output file."""
        self._channels[0].sink.add_completion_line(words)

    def write_completion_line(self) -> None:
        self._channels[0].sink.write_completion_line()

    def close(self) -> list[Capture]:
        """Close the output, return the `Capture` (kept output and its size) of each stream, and
        drop the callbacks that refer to the run."""
        self._on_end = self._on_disk_limit = _do_nothing
        return [channel.sink.close() for channel in self._channels]

    def release_pipes(self) -> dict[Stream, PipeReader]:
        """Stop watching the pipes that leftover processes still hold open, and return the readers
        of these pipes, which the caller owns from now on."""
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
        """Read from the pipe of one output stream at most `most` times, or until the pipe is empty
        or has reached EOF."""
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
        """React to an output file that has reached its size limit: go on, close the stream's pipe
        or stop the run, as the run's plan says. Return whether the pipe was closed."""
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
        """Stop reading the output, so that the command blocks on a full pipe until the listener's
        buffer has room."""
        self._watching = False
        for channel in self._open:
            self._loop.unwatch(channel.reader.fd)
