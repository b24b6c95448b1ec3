"""Tests of `LineReader` and `LineWriter`: lines stay whole and in order, at any speed."""

import os
import threading

from hypothesis import given
from hypothesis import strategies as st

from nacre.frontends.rpc.line_io import LineReader, LineWriter
from tests.support.helpers import eventually

LINES = st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")), max_size=8)


@given(LINES, st.lists(st.integers(1, 9), max_size=30), st.booleans())
def test_however_they_come_in_pieces_the_lines_are_the_same(
    lines: list[bytes], sizes: list[int], ended: bool
) -> None:
    ended = ended and bool(lines)
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    inbox, found = LineReader(longest=8), []
    for size in sizes:
        piece, data = data[:size], data[size:]
        found += inbox.feed(piece)
    found += inbox.feed(data) + inbox.end()
    whole = [line if len(line) <= 8 else None for line in lines]
    if not ended and whole and lines[-1] == b"":
        whole.pop()  # there is no line after the last newline
    assert found == whole


def test_a_line_that_is_too_long_takes_no_memory_and_the_next_one_is_whole() -> None:
    inbox = LineReader(longest=10)
    assert inbox.feed(b"x" * 100) == []
    assert inbox.feed(b"x" * 100) == []
    assert inbox.feed(b"y\nnext\n") == [None, b"next"]


def test_write_line_does_not_block_on_a_reader_that_does_not_read() -> None:
    source, sink = os.pipe()
    outbox = LineWriter(sink)
    lines = [b"%d %s\n" % (i, b"x" * (i * 37 % 9000)) for i in range(300)]
    for line in lines:  # the lines are far larger than the pipe buffer
        outbox.write_line(line)
    assert not outbox.drain(0.1)
    found = b""
    while len(found) < sum(map(len, lines)):
        found += os.read(source, 65536)
    assert found == b"".join(lines)
    assert outbox.drain(5)
    outbox.close()
    os.close(source)
    os.close(sink)


def test_lines_of_many_threads_are_not_mixed() -> None:
    source, sink = os.pipe()
    outbox, found = LineWriter(sink), bytearray()

    def put(letter: bytes) -> None:
        for _ in range(50):
            outbox.write_line(letter * 3000 + b"\n")
            outbox.wait_for_room()

    def read() -> None:
        while data := os.read(source, 4096):
            found.extend(data)

    threads = [threading.Thread(target=put, args=(bytes([65 + i]),)) for i in range(4)]
    reader = threading.Thread(target=read)
    for thread in (*threads, reader):
        thread.start()
    for thread in threads:
        thread.join()
    assert outbox.drain(10)
    outbox.close()
    os.close(sink)
    reader.join()
    os.close(source)
    lines = bytes(found).splitlines()
    assert len(lines) == 200
    assert all(line == line[:1] * 3000 for line in lines)


def test_the_line_writer_notices_a_closed_reader() -> None:
    source, sink = os.pipe()
    outbox = LineWriter(sink)
    os.close(source)
    outbox.write_line(b"anybody?\n")
    assert isinstance(outbox.problem, BrokenPipeError)
    outbox.wait_for_room()  # returns at once, because the reader has closed the pipe
    os.close(sink)


def test_a_descriptor_that_does_not_wait_loses_nothing() -> None:
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    outbox = LineWriter(sink)
    for _ in range(100):
        outbox.write_line(b"y" * 3999 + b"\n")
    found = b""
    while len(found) < 400_000:
        found += os.read(source, 65536)
    assert found == (b"y" * 3999 + b"\n") * 100
    eventually(lambda: outbox.drain(0))
    outbox.close()
    os.close(source)
    os.close(sink)
