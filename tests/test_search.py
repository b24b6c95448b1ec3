"""Finding lines that match: in blocks, as they grow, and by an index that is written with them."""

import io
import os
import re
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre import lines, search
from nacre.lines import Index, Lines, Mark
from nacre.search import Found
from nacre.store import reading
from nacre.text import settled

TEXT = st.lists(
    st.sampled_from(["a", "b", "ab", "\n", "\n\n", "x" * 9, "\x1b[1mb\x1b[0m", "c\rb", " "]),
    max_size=30,
).map("".join)
# Of those that are tried on whole blocks, and those that are tried on each line.
PATTERNS = ["b", "^b", "b$", "^$", "a|x", "x+", "a.*b", "b\\s", "(?i)B", "[^a]b", "\\Ab", "ab?\\b"]


@given(TEXT, st.sampled_from(PATTERNS), st.integers(0, 3), st.integers(1, 40))
def test_what_is_found_is_what_each_line_for_itself_would_say(
    text: str, pattern: str, context: int, block: int
) -> None:
    seen = [settled(line) for line in text.split("\n")]
    seen = seen[:-1] if text.endswith("\n") or not text else seen
    hits = {i for i, line in enumerate(seen) if re.search(pattern, line)}
    near = {i for i in range(len(seen)) if any(abs(i - hit) <= context for hit in hits)}
    wanted = [Found(line=i + 1, text=seen[i], matches=i in hits) for i in sorted(near)]
    usual, search.BLOCK = search.BLOCK, block  # type: ignore[misc]
    try:
        found = list(search.grep(io.BytesIO(text.encode()), re.compile(pattern), context))
    finally:
        search.BLOCK = usual  # type: ignore[misc]
    assert found == wanted


def test_a_line_is_waited_for_also_when_it_has_no_end_yet(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            for piece in (b"three\nrea", b"dy> "):
                time.sleep(0.05)
                file.write(piece)

    writer = threading.Thread(target=write)
    writer.start()
    with path.open("rb", buffering=0) as source:
        assert search.wait_for(source, re.compile("ready>"), 0) == Found(4, "ready> ", True)
        assert search.wait_for(source, re.compile("t"), 0) == Found(2, "two", True)
        assert search.wait_for(source, re.compile("t"), 8) == Found(3, "three", True)
    writer.join()


@given(
    st.lists(st.integers(1, 50), max_size=40),
    st.integers(1, 100),
    st.integers(1, 60),
    st.none() | st.integers(1, 60),
)
def test_with_an_index_the_same_lines_are_found(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    every: int,
    first: int,
    last: int | None,
) -> None:
    path = os.fsencode(tmp_path_factory.mktemp("index") / "output")
    usual, lines.EVERY = lines.EVERY, every  # type: ignore[misc]
    try:
        index, data = Index(path), b""
        for number, length in enumerate(lengths):
            data += b"%d" % (number % 10) * length + b"\n" * (number % 3)
            index.note(len(data), data.count(b"\n"))
    finally:
        lines.EVERY = usual  # type: ignore[misc]
    known, source = Lines(path), io.BytesIO(data)
    plain = b"".join(reading.lines(source, first, last))
    assert b"".join(reading.lines(source, first, last, known)) == plain
    for position in {0, len(data) // 2, len(data)}:
        counted = reading.newlines_before(source, position, known)
        assert counted == data[:position].count(b"\n")


def test_a_broken_index_is_good_up_to_where_it_breaks(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "output")
    index = Index(path)
    index.note(lines.EVERY, 100)
    index.note(3 * lines.EVERY, 250)
    with open(lines.path_of(path), "ab") as file:
        file.write(b"\0" * 21)
    assert Lines(path).before_byte(10 * lines.EVERY) == Mark(3 * lines.EVERY, 250)
    assert Lines(path).before_line(150) == Mark(lines.EVERY, 100)
    assert Lines(path).before_line(101) == Mark(0, 0)  # the mark may stand in the middle of it
    assert Lines(path).before_line(102) == Mark(lines.EVERY, 100)


def test_what_cannot_be_indexed_is_still_written(tmp_path: Path) -> None:
    index = Index(os.fsencode(tmp_path / "nowhere" / "output"))
    index.note(lines.EVERY, 1)
    assert Lines(os.fsencode(tmp_path / "nowhere" / "output")).before_byte(1 << 40) == Mark(0, 0)
