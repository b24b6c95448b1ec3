"""Tests of `text.render`: output as the model gets it."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.capture.sink import Sink
from nacre.model.outcome import Capture
from nacre.model.plan import KIB, MIB, Keep
from nacre.text.render import Rendered, render

KEEP = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)


def captured(data: bytes, keep: Keep = KEEP) -> Capture:
    sink = Sink(keep, None)
    sink.write(bytearray(data))
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
        (b"y\n" * 43, "y\n" * 43),
        (b"again\n" * 5 + b"again", "again\n" * 5 + "again"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(500), "[binary data, 516B, a PNG image]\n"),
        (b"text\n" + bytes(20) + b"\nmore\n", "text\n[binary data, 21B]\nmore\n"),
        (b"a\0b\nnext\n", "[binary data, 4B]\nnext\n"),
        (b"\x89PNG\r\n" + bytes(99) + b"\nFAILED", "[binary data, 106B, a PNG image]\nFAILED"),
        (bytes(range(256)) * 40, "[binary data, 10KB]\n"),
        (b"a\tb\n", "a\tb\n"),
        ("ü€😀\n".encode(), "ü€😀\n"),
        (b"\xff bad\n", "\ufffd bad\n"),
    ],
)
def test_a_line_is_shown_as_a_terminal_shows_it_in_the_end(printed: bytes, seen: str) -> None:
    made = rendered(printed)
    assert (made.head, made.tail, made.omitted) == (seen, "", None)


def test_binary_far_from_the_beginning_is_described_where_it_stands() -> None:
    data = b"".join(b"line %d\n" % n for n in range(2000)) + bytes(300) + b"\nend\n"
    assert "[300 bytes of binary data]\nend\n" in rendered(data, 40_000).head


def test_text_after_binary_data_is_cut_like_any_text() -> None:
    lines = [b"line %d\n" % n for n in range(3, 5000)]
    made = rendered(b"build\n" + bytes(9000) + b"\n" + b"".join(lines), 1000)
    assert made.head.startswith("build\n[binary data, 8.8KB]\nline 3\n")
    assert made.tail.endswith("line 4998\nline 4999\n")
    assert made.omitted is not None
    assert made.shown[0] == (1, made.omitted.first - 1)
    assert made.head.count("\n") >= made.omitted.first - 1
    assert f"line {made.omitted.first}\n" not in made.head + made.tail


def test_a_long_line_keeps_its_two_ends_and_says_what_is_missing() -> None:
    data = b"before\n" + b"x" * 4000 + b"y" * 1000 + b"END\n"
    made = rendered(data, 3000)
    line = made.head.split("\n")[1]
    assert len(line) == 3000 - len("before\n") - len("\n")
    said = re.search(r"\.\.\.\[([\d,]+) characters left out: since (\d+)\]\.\.\. *", line)
    assert said is not None
    front, back = line[: said.start()], line[said.end() :]
    missing, since = int(said[1].replace(",", "")), int(said[2])
    assert front.encode() + data[since : since + missing] + back.encode() == data[7:-1]
    assert made.cut
    assert made.omitted is None


def test_a_long_line_that_fits_is_shown_whole() -> None:
    made = rendered(b"x" * 5000, 5000)
    assert (made.head, made.cut) == ("x" * 5000, False)


def test_several_long_lines_share_the_room() -> None:
    made = rendered(b"\n".join([b"a" * 6000, b"short", b"b" * 6000, b""]), 8000)
    sizes = [len(line) for line in made.head.split("\n")]
    assert sizes[1] == 5
    assert abs(sizes[0] - sizes[2]) <= 1
    assert 7990 < len(made.head) <= 8000


@given(st.integers(0, 9000), st.sampled_from([b"", b"first line\n"]))
def test_a_reply_never_shrinks_because_a_line_grew(size: int, before: bytes) -> None:
    shown, longer = (len(rendered(before + b"x" * n, 5000).head) for n in (size, size + 1))
    assert shown <= longer <= 5000


@pytest.mark.parametrize(
    "lengths", [(2001, 30_000), (2001, 2001, 30_000), (6667,), (4000, 9000, 9001)]
)
@pytest.mark.parametrize("character", ["x", "é", "日"])
def test_long_lines_fill_the_reply(lengths: tuple[int, ...], character: str) -> None:
    text = "".join(f"{character * length}\n" for length in lengths)
    shown = rendered(text.encode()).head
    whole = len(text.encode())
    assert min(whole, 20_000) - 100 <= len(shown.encode()) <= 20_000


@pytest.mark.parametrize("end", ["", "\n", "é", "\r", "\x1b[0m\n"])
@pytest.mark.parametrize("character", ["x", "日"])
def test_the_ends_of_a_line_of_megabytes_are_shown(character: str, end: str) -> None:
    made = rendered(f"a\nb\n{character * 3_000_000}{end}".encode())
    text = made.head + made.tail
    assert text.startswith("a\nb\n")
    assert "left out" in text or made.omitted is not None
    assert len(text.encode()) <= 20_000


@pytest.mark.parametrize("most", [1000, 20_000])
def test_a_coloured_line_of_megabytes_fills_the_reply(most: int) -> None:
    text = rendered(b"\x1b[31mred\x1b[0m plain " * 150_000, most).head
    assert most - 100 <= len(text) <= most
    assert re.fullmatch(
        r"(?:red plain )+.{0,9}\.{3}\[.*left out: since 0\][.]+.{0,9}(?: ?red plain)+ ", text
    )


def test_a_progress_bar_that_is_not_finished_shows_its_last_state() -> None:
    made = rendered(b"".join(b"progress %d%%\r" % n for n in range(200_001)))
    assert "progress 200000%" in made.head + made.tail


def test_equal_lines_that_fit_are_shown_as_they_are() -> None:
    data = b'{\n  "a": [\n    0,\n    0,\n    0\n  ]\n}\n'
    assert rendered(data).head == data.decode()


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        (b"y\n" * 43, "y\n[previous line repeated 42 more times]\n"),
        (b"again\n" * 9 + b"again", "again\n[previous line repeated 9 more times]"),
        (b"a line with some text in it\n" * 2, None),  # folding would not make it shorter
    ],
)
def test_equal_lines_that_do_not_fit_are_folded(printed: bytes, seen: str | None) -> None:
    made = rendered(printed, len(printed) - 1)
    assert (made.head if made.omitted is None else None) == seen


def test_a_read_of_given_lines_folds_nothing() -> None:
    made = render(captured(b"same\n" * 2000), 1000, fold=False)
    assert "repeated" not in made.head + made.tail
    assert made.omitted is not None


def test_the_notice_in_a_long_line_is_a_complete_call() -> None:
    made = render(captured(b"x" * 9000), 4000, read_call="job {}".format)
    assert re.search(r"\[[\d,]+ characters left out: job \d+\]", made.head)


def test_what_is_left_out_is_said_by_lines_and_bytes() -> None:
    data = b"".join(b"line %d\n" % n for n in range(1, 10_001))
    made = rendered(data, 1000)
    assert made.omitted is not None
    (one, last), (first, end) = made.shown
    assert (one, end) == (1, 10_000)
    assert (made.omitted.first, made.omitted.last) == (last + 1, first - 1)
    _check_bytes(made, data)
    assert made.head.startswith("line 1\nline 2\n")
    assert made.tail.endswith("line 9999\nline 10000\n")


def _check_bytes(made: Rendered, data: bytes) -> None:
    """Check that shown and omitted bytes together are the whole output, each byte once."""
    assert made.omitted is not None
    head, tail = made.head.encode(), made.tail.encode()
    if head.endswith(b"...\n"):
        head = head[:-4]
    if tail.startswith(b"..."):
        tail = tail[3:]
        part, newline, rest = tail.partition(b"\n")
        tail = tail if part + newline + rest == data[len(data) - len(tail) :] else part + rest
    assert made.omitted.byte == len(head)
    assert data.startswith(head)
    assert data.endswith(tail)
    assert made.omitted.size == len(data) - len(head) - len(tail)


lines = st.lists(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40), max_size=60
)


@given(lines, st.integers(0, 300), st.sampled_from([0, 150, 4000]))
def test_a_reply_never_shrinks_because_the_output_grew(
    said: list[str], most: int, more: int
) -> None:
    """Adjacent lines differ in this test, because a reply does shrink when equal lines are folded.
    The kept tail is `more` bytes longer than necessary."""
    tail = most + 2 * 41 + more
    keep = Keep(whole=tail + most, head=most // 4 + 82, tail=tail)
    everything = [f"{number % 7}{line}" for number, line in enumerate(said)]
    sizes = []
    for count in range(len(everything) + 1):
        data = "".join(f"{each}\n" for each in everything[:count]).encode()
        made = rendered(data, most, keep)
        shown = len((made.head + made.tail).encode()) + made.spare
        assert shown <= most
        if made.cut:
            assert shown == most
            assert made.spare <= 16
            assert made.omitted is not None
            assert 0 < made.omitted.size <= len(data)
        else:
            assert made.head == data.decode()
        sizes.append((made.cut, shown))
    assert sizes == sorted(sizes)


def test_what_stands_behind_a_gap_is_never_shown_before_it() -> None:
    bar = b"".join(b"\r%d%% %s" % (n % 101, b"#" * 60) for n in range(60_000))
    data = b"begin\n" + bar + b"\n" + b"".join(b"line %d\n" % n for n in range(50_000))
    made = rendered(data)
    assert made.head == "begin\n"
    assert made.tail.endswith("line 49998\nline 49999\n")
    assert made.spare <= 16
    assert made.omitted is not None
    assert made.omitted.first == 2


@pytest.mark.parametrize(
    ("data", "most"),
    [
        (b"ab\n" * 10 + b"".join(b"%d\n" % (n % 1000) for n in range(600_000)), 200_000),
        (b"".join(b"%d\n" % (n % 1000) for n in range(400_000)) + b"x" * 60_000, 20_000),
        (b"x" * 2_000_000, 20_000),
        (b"\x1b[1mx\x1b[0m\r" * 150_000, 20_000),
        (b"\x1b[" + b"9" * 5000 + b"Gx\n", 20_000),
    ],
)
def test_rendering_takes_no_time(data: bytes, most: int) -> None:
    began = time.process_time()
    rendered(data, most)
    assert time.process_time() - began < 1.5


mess = st.lists(
    st.sampled_from(
        [b"a", b"bc", "ü€".encode(), b"\n", b"\n\n", b"\r", b"\x1b[1m", b"x\n" * 9, b"\0"]
    )
    | st.binary(max_size=8),
    max_size=60,
)


def test_bytes_that_are_no_text_count_as_what_they_become() -> None:
    made = rendered(b"aaa\x80", 4)
    assert len((made.head + made.tail).encode()) <= 4


@given(mess, st.integers(0, 200), st.integers(0, 100))
def test_any_output_is_rendered_within_bounds(pieces: list[bytes], most: int, whole: int) -> None:
    data = b"".join(pieces)
    made = rendered(data, most, Keep(whole=whole, head=whole // 4, tail=whole - whole // 4))
    total = data.count(b"\n") + (not data.endswith(b"\n") if data else 0)
    if not made.head.startswith("[binary"):
        assert len((made.head + made.tail).encode()) <= most
    numbers = [n for pair in made.shown for n in pair]
    assert numbers == sorted(numbers)
    assert all(1 <= n <= total for n in numbers)
    if made.omitted is not None:
        assert 0 <= made.omitted.size <= len(data)
        assert 1 <= made.omitted.first <= made.omitted.last


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


def test_what_folds_takes_no_more_room_because_there_is_much_of_it() -> None:
    made = rendered(b"waiting for it\n" * 120_000 + b"ERROR\n" + b"waiting for it\n" * 60_000)
    assert len(made.head + made.tail) + made.spare < 200
    assert "ERROR\n" in made.tail


def test_a_line_of_megabytes_is_shown_like_any_other_long_one() -> None:
    made = rendered(b"start\n" + b"m" * 2_200_000 + b"END\nend\n")
    start, line, end, nothing = made.head.split("\n")
    assert (start, end, nothing) == ("start", "end", "")
    assert len(line) == 20_000 - len("start\nend\n\n")
    assert line.endswith("mEND")
    assert (made.shown, made.cut, made.omitted) == (((1, 3),), True, None)


def test_a_stray_nul_hides_nothing() -> None:
    made = rendered(b"building\nfile a\0b is new\n" + b"".join(b"%d\n" % n for n in range(99)))
    assert made.head.startswith("building\nfile a\ufffdb is new\n0\n1\n")


def test_many_equal_lines_are_one_however_many() -> None:
    made = rendered(b"first\n" + b"waiting for the database\n" * 50_000 + b"ERROR: gave up\n")
    folded = "waiting for the database\n[previous line repeated 49,999 more times]\n"
    assert made.head == f"first\n{folded}ERROR: gave up\n"


def test_the_line_at_the_cut_has_no_note_of_its_own() -> None:
    data = b"x" * 50_000 + b"\n" + b"same\n" * 5
    made = rendered(data, 1000)
    head, *_ = made.head.split("...")
    *_, tail = made.tail.split("...")
    assert "left out" not in made.head + made.tail
    assert data.startswith(head.encode())
    assert data.endswith(tail.encode())
    assert made.omitted is not None
    assert (made.omitted.byte, made.omitted.first, made.omitted.last) == (len(head), 1, 1)
    assert made.omitted.size == len(data) - len(head) - len(tail)


equal_lines = st.lists(
    st.tuples(st.text("abc", max_size=90), st.integers(1, 40)),
    max_size=12,
)


@given(equal_lines, st.integers(0, 600), st.booleans())
def test_the_gap_in_an_output_with_equal_lines_is_exact(
    groups: list[tuple[str, int]], most: int, terminated: bool
) -> None:
    """Head and tail are parts of the output, and the notice counts all other bytes."""
    data = "".join(f"{line}\n" * count for line, count in groups).encode()
    data = data if terminated else data.removesuffix(b"\n")
    made = rendered(data, most)
    if made.omitted is None:
        return
    shown = len((made.head + made.tail).encode()) + made.spare
    assert shown == most
    head, tail = (_without_folds(each) for each in (made.head, made.tail))
    head = head.removesuffix("...\n")
    tail = tail.removeprefix("...")
    if not data.endswith(b"\n"):
        tail = tail.removesuffix("\n")  # of a line that is shown in part
    assert data.decode().startswith(head)
    assert data.decode().endswith(tail)
    assert made.omitted.byte == len(head)
    assert made.omitted.size == len(data) - len(head) - len(tail)
    assert made.omitted.first == head.count("\n") + 1


def _without_folds(text: str) -> str:
    """Undo the folding of equal lines."""
    return re.sub(
        r"(?m)^(.*)\n\[previous line repeated ([\d,]+) more times?\]$",
        lambda match: "\n".join([match[1]] * (1 + int(match[2].replace(",", "")))),
        text,
    )
