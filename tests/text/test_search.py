"""Tests of `text.search` and `text.line_index`: search in blocks, in growing files, by index."""

import io
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.model.requests import Between
from nacre.store import output_range
from nacre.text import line_index, search
from nacre.text.clean import as_displayed
from nacre.text.line_index import IndexEntry, LineIndex, LineIndexWriter
from nacre.text.search import FoundLine

pytestmark = pytest.mark.slow

TEXT = st.lists(
    st.sampled_from(["a", "b", "ab", "\n", "\n\n", "x" * 9, "\x1b[1mb\x1b[0m", "c\rb", " "]),
    max_size=30,
).map("".join)
# Both kinds of patterns: matched against a whole block, and matched against each line.
PATTERNS = ["b", "^b", "b$", "^$", "a|x", "x+", "a.*b", "b\\s", "(?i)B", "[^a]b", "\\Ab", "ab?\\b"]


@given(TEXT, st.sampled_from(PATTERNS), st.integers(0, 3), st.integers(1, 40))
def test_what_is_found_is_what_each_line_for_itself_would_say(
    text: str, pattern: str, context: int, block: int
) -> None:
    seen = [as_displayed(line) for line in text.split("\n")]
    seen = seen[:-1] if text.endswith("\n") or not text else seen
    hits = {i for i, line in enumerate(seen) if re.search(pattern, line)}
    near = {i for i in range(len(seen)) if any(abs(i - hit) <= context for hit in hits)}
    wanted = [FoundLine(line=i + 1, text=seen[i], matches=i in hits) for i in sorted(near)]
    usual, search.BLOCK_SIZE = search.BLOCK_SIZE, block  # type: ignore[misc]
    try:
        each = search.grep(io.BytesIO(text.encode()), re.compile(pattern), context)
        found = [one for one in each if isinstance(one, FoundLine)]
    finally:
        search.BLOCK_SIZE = usual  # type: ignore[misc]
    assert found == wanted


def test_a_line_is_waited_for_also_when_it_has_no_end_yet(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    with path.open("rb", buffering=0) as source, path.open("ab", buffering=0) as writer:
        ready = search.GrowingSearch(source, re.compile("ready>"))
        assert ready.search_new() is None
        writer.write(b"three\nrea")
        assert ready.search_new() is None
        writer.write(b"dy> ")
        assert ready.search_new() == FoundLine(4, "ready> ", True)
        assert search.GrowingSearch(source, re.compile("t")).search_new() == FoundLine(
            2, "two", True
        )
        assert search.GrowingSearch(source, re.compile("t"), 3, 8).search_new() == FoundLine(
            3, "three", True
        )


def found_in(data: bytes, pattern: str, **more: int) -> list[tuple[int, str]]:
    found = search.grep(io.BytesIO(data), search.compile_pattern(pattern), **more)
    return [(each.line, each.text) for each in found if isinstance(each, FoundLine)]


@pytest.mark.parametrize(
    ("data", "pattern", "lines"),
    [
        (b"a1\nb\n", "[[:digit:]]", [(1, "a1")]),
        (b"a\nb\n", "a[\t-~]b", []),
        (b"a b\n", "a[[:space:]]b", [(1, "a b")]),
        # Two pieces of a very long line must not match as if they were adjacent.
        (b"x" * ((1 << 20) - 2) + b"ER" + b"y" * (1 << 20) + b"ROR!\nok\n", "ERROR", []),
        (b"x" * (1 << 21) + b"\nneedle\n", "needle", [(2, "needle")]),
        (
            b"".join(b"\rstep %d" % n for n in range(300_000)) + b"\nz\n",
            "step",
            [(1, "step 299999")],
        ),
    ],
)
def test_lines_that_are_odd(data: bytes, pattern: str, lines: list[tuple[int, str]]) -> None:
    assert found_in(data, pattern) == lines


def test_of_a_long_line_what_stands_around_the_match_is_shown() -> None:
    ((_, text),) = found_in(b"a" * 3000 + b"needle" + b"b" * 3000, "needle")
    assert len(text) == search.MAX_SHOWN
    assert "aneedleb" in text
    assert text.startswith("...")
    assert text.endswith("...")


@pytest.mark.parametrize("size", [1 << 16, 1 << 17, 1 << 20, 3 << 20])
@pytest.mark.parametrize("context", [0, 2])
def test_every_part_of_a_long_line_is_searched(size: int, context: int) -> None:
    for at in {0, 1, size // 2, min((1 << 20) - 3, size - 6), min((1 << 17) - 3, size - 6)}:
        data = b"first\n" + b"x" * at + b"needle" + b"y" * (size - at - 6) + b"\nlast\n"
        for pattern in ("needle", "[n]eedle"):
            found = found_in(data, pattern, context=context)
            assert [line for line, _ in found] == ([1, 2, 3] if context else [2])
            text = found[1 if context else 0][1]
            assert "needle" in text
            assert text.startswith("...") == (at > 1500)
            assert text.endswith("...") == (size - at > 2000)
        growing = search.GrowingSearch(io.BytesIO(data), re.compile("needle"))
        assert (growing.search_new() or FoundLine(0, "", False)).line == 2


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_anchors_match_only_at_the_ends_of_a_long_line(size: int) -> None:
    data = b"x" * size + b"\nx\n"
    for pattern in ("^x", "x$"):
        assert [line for line, _ in found_in(data, pattern)] == [1, 2]
    data = b"b" + b"x" * size + b"e\nok\n"
    for pattern in ("^x", "x$", "^e", "b$"):
        assert found_in(data, pattern) == []
    for pattern in ("^b", "e$"):
        assert [line for line, _ in found_in(data, pattern)] == [1]


def test_a_match_that_is_longer_than_a_piece_is_found() -> None:
    data = b"a\nx ERROR" + b"y" * (5 << 20) + b"\nb\n"
    assert [line for line, _ in found_in(data, "ERROR.*")] == [2]
    assert found_in(data, "ERROR.*x$") == []


@pytest.mark.parametrize("count", [500, 1100, 3000])
def test_a_line_is_waited_for_behind_a_progress_bar(tmp_path: Path, count: int) -> None:
    (tmp_path / "output").touch()
    with open(tmp_path / "output", "rb") as source, open(tmp_path / "output", "ab") as output:
        growing = search.GrowingSearch(source, re.compile("^Ready on"))
        for number in range(count):
            output.write(b"\r%3d%% %s" % (number, b"#" * 60))
            if number % 100 == 0:
                output.flush()
                assert growing.search_new() is None
        output.write(b"\rReady on 80" + b" " * 60 + b"\n")
        output.flush()
        assert growing.search_new() is not None


def test_what_is_behind_the_last_line_is_not_looked_at() -> None:
    data = b"".join(b"%d\n" % n for n in range(1, 101))
    assert found_in(data, "^1", last=10) == [(1, "1"), (10, "10")]
    assert found_in(data, "^11$", last=10, context=2) == []


def test_what_a_process_says_is_read_as_far_as_it_makes_sense() -> None:
    said = b'warning\n[3, "x", true]\n{"at": 9, "over": false}\n[4, "cut'
    assert search.decode_result(said, 1) == search.SearchResult(
        (FoundLine(3, "x", True),), 9, False
    )


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
    usual, line_index.INTERVAL = line_index.INTERVAL, every  # type: ignore[misc]
    try:
        index, data = LineIndexWriter(path), b""
        for number, length in enumerate(lengths):
            data += b"%d" % (number % 10) * length + b"\n" * (number % 3)
            index.add(len(data), data.count(b"\n"))
    finally:
        line_index.INTERVAL = usual  # type: ignore[misc]
    known, source = LineIndex(path), io.BytesIO(data)
    part = Between(first=first, last=last)
    plain = output_range.locate(source, part)
    assert output_range.locate(source, part, known) == plain
    for position in {0, len(data) // 2, len(data)}:
        counted = output_range.count_newlines(source, position, known)
        assert counted == data[:position].count(b"\n")


def test_a_broken_index_is_good_up_to_where_it_breaks(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "output")
    index = LineIndexWriter(path)
    index.add(line_index.INTERVAL, 100)
    index.add(3 * line_index.INTERVAL, 250)
    with open(line_index.index_path(path), "ab") as file:
        file.write(b"\0" * 21)
    assert LineIndex(path).before_byte(10 * line_index.INTERVAL) == IndexEntry(
        3 * line_index.INTERVAL, 250
    )
    assert LineIndex(path).before_line(150) == IndexEntry(line_index.INTERVAL, 100)
    assert LineIndex(path).before_line(101) == IndexEntry(
        0, 0
    )  # the first record may point into the middle of line 101
    assert LineIndex(path).before_line(102) == IndexEntry(line_index.INTERVAL, 100)


def test_what_cannot_be_indexed_is_still_written(tmp_path: Path) -> None:
    index = LineIndexWriter(os.fsencode(tmp_path / "nowhere" / "output"))
    index.add(line_index.INTERVAL, 1)
    assert LineIndex(os.fsencode(tmp_path / "nowhere" / "output")).before_byte(
        1 << 40
    ) == IndexEntry(0, 0)
