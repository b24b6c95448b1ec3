"""Tests of `PipeReader`: a few pipes at a time grow during a flood and shrink afterwards."""

import fcntl
import os

from nacre.process.pipe_reader import DEFAULT_SIZE, GROWN_SIZE, PipeGrowth, PipeReader


def _size(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def _flood(reader: PipeReader, end: int, rounds: int = 6) -> None:
    for _ in range(rounds):
        os.write(end, bytes(DEFAULT_SIZE))
        while reader.read() is not None:
            pass


def _reader(growth: PipeGrowth) -> tuple[PipeReader, int]:
    readable, end = os.pipe2(os.O_NONBLOCK)
    return PipeReader(readable, growth), end


def test_a_pipe_grows_while_it_floods_and_shrinks_when_it_is_calm() -> None:
    growth = PipeGrowth(limit=1)
    reader, end = _reader(growth)
    assert _size(reader.fd) == DEFAULT_SIZE
    for _ in range(6):  # each read empties a full pipe
        os.write(end, bytes(DEFAULT_SIZE))
        assert reader.read() == bytes(DEFAULT_SIZE)
    assert _size(reader.fd) == GROWN_SIZE
    assert growth.left == 0
    for _ in range(70):
        os.write(end, b"a line\n")
        assert reader.read() == b"a line\n"
    assert _size(reader.fd) == DEFAULT_SIZE
    assert growth.left == 1
    reader.close()
    os.close(end)


def test_only_a_limited_number_of_pipes_grows_at_once() -> None:
    growth = PipeGrowth(limit=1)
    (one, first_end), (two, second_end) = _reader(growth), _reader(growth)
    _flood(one, first_end)
    _flood(two, second_end)
    assert (_size(one.fd), _size(two.fd)) == (GROWN_SIZE, DEFAULT_SIZE)
    one.close()
    assert growth.left == 1
    two.close()
    for end in (first_end, second_end):
        os.close(end)


def test_nothing_now_is_not_the_end() -> None:
    reader, end = _reader(PipeGrowth())
    assert reader.read() is None
    os.close(end)
    assert reader.read() == b""
    reader.close()
