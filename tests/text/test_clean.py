"""Tests of `text.clean`: cut characters, colours, progress bars, binary data, sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.text.clean import (
    as_displayed,
    decode,
    describe_binary,
    drop_partial_end,
    drop_partial_start,
    fit_end,
    fit_start,
    human_size,
    shown_size,
    strip_escapes,
)


@given(st.text(), st.integers(0, 400))
def test_text_cut_anywhere_decodes_without_a_replacement_character(text: str, at: int) -> None:
    data = text.replace("\ufffd", "").encode()
    head, tail = data[:at], data[at:]
    assert "\ufffd" not in decode(drop_partial_end(head))
    assert "\ufffd" not in decode(drop_partial_start(tail))
    assert len(head) - len(drop_partial_end(head)) <= 3
    assert len(tail) - len(drop_partial_start(tail)) <= 3


@given(st.text())
def test_whole_text_is_never_shortened(text: str) -> None:
    data = text.encode()
    assert drop_partial_end(data) == data
    assert drop_partial_start(data) == data


@given(st.binary())
def test_any_bytes_become_text(data: bytes) -> None:
    decode(drop_partial_end(data)).encode()
    as_displayed(decode(data))
    describe_binary(data)


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        (b"abc\xe2\x82", b"abc"),
        (b"abc\xf0\x9f\x98", b"abc"),
        (b"abc\xc3", b"abc"),
        ("abc€".encode(), "abc€".encode()),
        (b"abc\xff", b"abc\xff"),  # \xff is never the start of a character
        (b"\x80\x80\x80\x80", b"\x80\x80\x80\x80"),
        (b"", b""),
    ],
)
def test_a_cut_end(cut: bytes, whole: bytes) -> None:
    assert drop_partial_end(cut) == whole


@pytest.mark.parametrize(
    ("cut", "whole"),
    [(b"\x82\xacabc", b"abc"), (b"abc", b"abc"), (b"\x80\x80\x80\x80", b"\x80\x80\x80\x80")],
)
def test_a_cut_start(cut: bytes, whole: bytes) -> None:
    assert drop_partial_start(cut) == whole


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("10%\r50%\r100%\n", "100%\n"),
        ("abc\rX", "Xbc"),
        ("abc\r\x1b[KX", "X"),
        ("abc\x1b[2K\rX", "X"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("a\r\r\nb", "a\nb"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("ab\b\bxy", "xy"),
        ("N\bNA\bAM\bME\bE", "NAME"),
        ("abcdef\x1b[3D\x1b[K", "abc"),
        ("\x1b[5Gx", "    x"),
        ("50%\x1b[1G60%", "60%"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1b[999999999Cb", "a" + " " * 4095 + "b"),
        ("plain", "plain"),
        ("\x1b", ""),
    ],
)
def test_what_a_terminal_shows_in_the_end(written: str, seen: str) -> None:
    assert as_displayed(written) == seen


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="\r\b\x1b")))
def test_text_without_controls_settles_as_it_is(text: str) -> None:
    assert as_displayed(text) == text
    assert strip_escapes(text) == text


def test_colours_are_taken_out_and_nothing_else() -> None:
    assert strip_escapes("\x1b[1;31mE\x1b[0m: \x1b(Bx\ry") == "E: x\ry"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x7fELF\x02\x01\x01\0" + bytes(100), "binary data, 108B, an ELF program"),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary data, 10B, a PNG image"),
        (b"a\0b", "binary data, 3B"),
        (bytes(range(128, 256)) * 20, "binary data, 2.5KB"),
        (b"hello\n", None),
        ("grüße €\n".encode(), None),
        (b"\x1b[31mred\x1b[0m\n", None),
        (b"BZhello is a word\n", None),
        (b"caf\xe9 in latin-1 is mostly text\n", None),
        (b"", None),
    ],
)
def test_binary_is_described(data: bytes, said: str | None) -> None:
    assert describe_binary(data) == said


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KB"),
        (1025, "1.1KB"),
        (131072, "128KB"),
        (131073, "128.1KB"),
        (2621440, "2.5MB"),
        (1024**2 - 1, "1MB"),
        (1024**3, "1GB"),
        (5 * 1024**4, "5TB"),
    ],
)
def test_sizes_for_people(size: int, said: str) -> None:
    assert human_size(size) == said


@given(st.integers(0, 2**60))
def test_a_size_is_never_said_smaller_than_it_is(size: int) -> None:
    said = human_size(size)
    number = float(said.rstrip("TGMKB"))
    unit = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}[said.strip("0123456789.")[0]]
    assert number * unit >= size * 0.9999999
    assert (number - 0.1) * unit <= size


# Data with characters of every length and with bytes that are not UTF-8.
MIXED = st.lists(st.one_of(st.binary(max_size=8), st.text(max_size=8).map(str.encode))).map(
    b"".join
)


@given(MIXED, st.integers(0, 60))
def test_a_fitting_part_is_within_the_limit_and_as_long_as_possible(
    data: bytes, limit: int
) -> None:
    start, end = fit_start(data, limit), fit_end(data, limit)
    assert data.startswith(start)
    assert data.endswith(end)
    for part, more in (
        (start, data[: len(start) + 5]),
        (end, data[max(0, len(data) - len(end) - 5) :]),
    ):
        assert len(decode(part).encode()) == shown_size(part) <= limit
        # A cut may drop an incomplete character; any longer part would not fit.
        assert len(data) - len(part) < 4 or shown_size(more) > limit


@given(st.text(max_size=50))
def test_text_that_fits_is_whole(text: str) -> None:
    data = text.encode()
    assert fit_start(data, len(data)) == fit_end(data, len(data)) == data
