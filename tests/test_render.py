"""Output as a model gets to see it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.capture.sink import Sink
from nacre.outcome import Capture
from nacre.plan import KIB, MIB, Keep
from nacre.render import LINE, Rendered, render

KEEP = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)


def captured(data: bytes, keep: Keep = KEEP) -> Capture:
    sink = Sink(keep, None)
    sink.take(bytearray(data))
    return sink.close()


def rendered(data: bytes, most: int = 20_000, keep: Keep = KEEP) -> Rendered:
    return render(captured(data, keep), most)


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        (b"", ""),
        (b"hi\n", "hi\n"),
        (b"no newline", "no newline"),
        (b"a\n\n\nb\n", "a\n\n\nb\n"),
        (b"\x1b[31mred\x1b[0m\n", "red\n"),
        (b"10%\r50%\r100%\ndone\n", "100%\ndone\n"),
        (b"longer\rshort\n", "shortr\n"),
        (b"old old old\r\x1b[Knew\n", "new\n"),
        (b"windows\r\nlines\r\n", "windows\nlines\n"),
        (b"y\n" * 43, "y (×43)\n"),
        (b"same line\nsame line\n", "same line (×2)\n"),
        (b"}\n}\n", "}\n}\n"),  # nothing would be won
        (b"again\n" * 5 + b"again", "again (×6)"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(500), "[binary data, 516B, a PNG image]\n"),
        (b"text\n" + bytes(20) + b"\nmore\n", "[binary data, 31B]\n"),
        (b"a\tb\n", "a\tb\n"),
        ("ü€😀\n".encode(), "ü€😀\n"),
        (b"\xff bad\n", "\ufffd bad\n"),
    ],
)
def test_a_line_is_shown_as_a_terminal_shows_it_in_the_end(printed: bytes, seen: str) -> None:
    made = rendered(printed)
    assert (made.head, made.tail, made.left) == (seen, "", None)


def test_binary_far_from_the_beginning_is_described_where_it_stands() -> None:
    data = b"".join(b"line %d\n" % n for n in range(2000)) + bytes(300) + b"\nend\n"
    assert "[300 bytes of binary data]\nend\n" in rendered(data, 40_000).head


def test_a_long_line_keeps_its_two_ends_and_says_what_is_missing() -> None:
    text = rendered(b"before\n" + b"x" * 5000 + b"END\n").head
    line = text.split("\n")[1]
    assert len(line) == LINE
    said = re.search(r"\.\.\.\[([\d,]+) characters left out; since (\d+)\]\.\.\.", line)
    assert said is not None
    assert int(said[1].replace(",", "")) + LINE - len(said[0]) == 5003
    assert said[2] == "7"
    assert line.startswith("xxx")
    assert line.endswith("xEND")


def test_what_is_left_out_is_said_by_lines_and_bytes() -> None:
    data = b"".join(b"line %d\n" % n for n in range(1, 10_001))
    made = rendered(data, 1000)
    assert made.left is not None
    (one, last), (first, end) = made.shown
    assert (one, end) == (1, 10_000)
    assert (made.left.first, made.left.last) == (last + 1, first - 1)
    assert len((made.head + made.tail).encode()) + made.spare == 1000
    assert made.left.size == len(data) - 1000 + made.spare
    assert made.head.startswith("line 1\nline 2\n")
    assert made.tail.endswith("line 9999\nline 10000\n")


lines = st.lists(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40), max_size=60
)


@given(lines, st.integers(0, 300), st.sampled_from([16, 200, 4000]))
def test_a_reply_never_shrinks_because_the_output_grew(
    said: list[str], most: int, whole: int
) -> None:
    """But for what folds: so neighbours differ here."""
    keep = Keep(whole=whole, head=whole // 4, tail=whole - whole // 4)
    if whole < 2 * most + 2 * 40:
        keep = Keep(whole=4000, head=1000, tail=3000)
    everything = [f"{number % 7}{line}" for number, line in enumerate(said)]
    sizes = []
    for count in range(len(everything) + 1):
        data = "".join(f"{each}\n" for each in everything[:count]).encode()
        made = rendered(data, most, keep)
        shown = len((made.head + made.tail).encode()) + made.spare
        assert shown <= most
        if made.cut:
            assert shown == most
        else:
            assert made.head == data.decode()
        sizes.append((made.cut, shown))
    assert sizes == sorted(sizes)


mess = st.lists(
    st.sampled_from(
        [b"a", b"bc", "ü€".encode(), b"\n", b"\n\n", b"\r", b"\x1b[1m", b"x\n" * 9, b"\0"]
    )
    | st.binary(max_size=8),
    max_size=60,
)


@given(mess, st.integers(0, 200), st.integers(0, 100))
def test_whatever_is_printed_is_rendered_within_bounds(
    pieces: list[bytes], most: int, whole: int
) -> None:
    data = b"".join(pieces)
    made = rendered(data, most, Keep(whole=whole, head=whole // 4, tail=whole - whole // 4))
    total = data.count(b"\n") + (not data.endswith(b"\n") if data else 0)
    if not made.head.startswith("[binary"):
        assert len((made.head + made.tail).encode()) <= most
    numbers = [n for pair in made.shown for n in pair]
    assert numbers == sorted(numbers)
    assert all(1 <= n <= total for n in numbers)
    if made.left is not None:
        assert 0 <= made.left.size <= len(data)
        assert 1 <= made.left.first <= made.left.last


@pytest.mark.parametrize("count", [300_000, 3_000_000])
def test_lines_of_megabytes_have_their_true_numbers(count: int) -> None:
    data = b"".join(b"%d\n" % n for n in range(1, count + 1))
    made = rendered(data)
    (_, last), (first, _) = made.shown
    assert made.head.split("\n")[last - 1] == str(last)
    whole = made.tail.split("\n")
    assert whole[-(count - first + 2)] == str(first)
    assert whole[-2:] == [str(count), ""]


def test_a_progress_bar_of_megabytes_is_its_last_state() -> None:
    bar = b"".join(b"\r%3d%% %s" % (n % 101, b"#" * 60) for n in range(60_000))
    made = rendered(b"begin\n" + bar + b"\rall done" + b" " * 60 + b"\nend\n")
    text = made.head + made.tail
    assert "all done" in text
    assert len(text) < 300


def test_many_equal_lines_are_one_however_many() -> None:
    made = rendered(b"first\n" + b"waiting for the database\n" * 50_000 + b"ERROR: gave up\n")
    assert made.head == "first\nwaiting for the database (×50000)\nERROR: gave up\n"
