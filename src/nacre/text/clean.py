"""Pure functions that convert a command's output bytes to readable text.

Output is kept as bytes and converted to text only once, when nacre writes a reply. This module cuts
bytes at character boundaries and replaces bytes that are not UTF-8. Colour codes are removed, and a
progress bar is shown in its last state. Binary data is described instead of printed. Sizes in bytes
are formatted for human readers.
"""

import re
from collections.abc import Callable
from typing import Final

# Terminal escape sequences. A CSI sequence moves the terminal's cursor or sets a colour. A string
# sequence (OSC, DCS, PM, APC) carries text such as the terminal's title. Terminal escape sequences
# other than CSI and string sequences are only a few characters long.
_CSI: Final = r"\x1b\[[0-?]*[ -/]*[@-~]"
_STRING: Final = r"\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\|(?=\x1b)|$)"
_SHORT: Final = r"\x1b[ -/]*[0-Z\\^-~]|\x1b$"
_ESCAPES: Final = re.compile(f"{_CSI}|{_STRING}|{_SHORT}")
# Control characters and escape sequences with which a program redraws the current terminal line.
_MOVES: Final = re.compile(f"(?P<csi>{_CSI})|(?P<other>{_STRING}|{_SHORT})|(?P<cr>\r)|(?P<bs>\b)")

_MAGIC: Final = (
    (b"\x7fELF", "an ELF program"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"PK\x03\x04", "a zip archive"),
    (b"SQLite format 3\0", "an SQLite database"),
)
_PLAIN_CONTROLS: Final = frozenset(b"\a\b\t\n\v\f\r\x1b")
# Everything up to the last character that text does not contain: the replacement character, or a
# control character other than the plain ones.
_UP_TO_LAST_ODD: Final = re.compile("(?s).*[\x00-\x06\x0e-\x1a\x1c-\x1f\ufffd]")
_UP_TO_FIRST_ODD: Final = re.compile("(?s).*?(?=[\x00-\x06\x0e-\x1a\x1c-\x1f\ufffd])")


def decode(data: bytes) -> str:
    """Decode UTF-8; invalid bytes become the replacement character U+FFFD."""
    return data.decode("utf-8", "replace")


def drop_partial_end(data: bytes) -> bytes:
    """Drop an incomplete UTF-8 character at the end of the data, but keep bytes that are not
    UTF-8."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:  # UTF-8 continuation byte; the character's first byte is before it
            continue
        return data[:-back] if _length(byte) > back else data
    return data


def drop_partial_start(data: bytes) -> bytes:
    """Drop the rest of a cut UTF-8 character, at most three bytes, from the start of the data."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    # Four UTF-8 continuation bytes in a row are invalid, so they are not the rest of a cut
    # character.
    if len(data) > 3 and start == 3 and data[3] & 0xC0 == 0x80:
        return data
    return data[start:]


def shown_size(data: bytes) -> int:
    """Return the size of the data in a reply, in bytes of UTF-8. A byte that is not UTF-8 becomes
    the replacement character, which has three bytes."""
    return len(data) if data.isascii() else len(decode(data).encode())


def displayed_size(data: bytes) -> int:
    """Return the size of the data as a terminal displays it, in bytes of UTF-8. A cursor movement
    of a few bytes can become a long row of blanks."""
    return len(as_displayed(decode(data)).encode())


def fit_start(data: bytes, limit: int, measure: Callable[[bytes], int] = shown_size) -> bytes:
    """Return the longest beginning of the data whose size, according to `measure`, is at most
    `limit`. An incomplete character at its end is dropped."""
    return data[: _fitting_length(len(data), limit, lambda n: drop_partial_end(data[:n]), measure)]


def fit_end(data: bytes, limit: int, measure: Callable[[bytes], int] = shown_size) -> bytes:
    """Return the longest end of the data whose size, according to `measure`, is at most `limit`. An
    incomplete character at its start is dropped."""
    size = len(data)
    cut = _fitting_length(size, limit, lambda n: drop_partial_start(data[size - n :]), measure)
    return data[size - cut :]


def _fitting_length(
    size: int, limit: int, cut: Callable[[int], bytes], measure: Callable[[bytes], int]
) -> int:
    """Return the length of the longest part `cut(n)`, with n up to `size`, that fits into the
    limit."""
    whole = cut(size)
    if measure(whole) <= limit:
        return len(whole)
    fits, too_long = 0, size
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if measure(cut(middle)) <= limit:
            fits = middle
        else:
            too_long = middle
    return len(cut(fits))


def _length(lead: int) -> int:
    """Return the length in bytes of a UTF-8 character whose first byte is `lead`."""
    if 0xC2 <= lead <= 0xDF:
        return 2
    if 0xE0 <= lead <= 0xEF:
        return 3
    return 4 if 0xF0 <= lead <= 0xF4 else 1


def strip_escapes(text: str) -> str:
    """Return the text without colour codes and other terminal escape sequences."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def as_displayed(text: str) -> str:
    """Return the text as a terminal finally shows it, with progress bars in their last state.

    Colours are removed. Each line is processed separately, so cursor movements to other lines have
    no effect.
    """
    text = text.replace("\r\n", "\n")
    if not ("\r" in text or "\b" in text or "\x1b" in text):
        return text
    return "\n".join(_line_as_displayed(line) for line in text.split("\n"))


# Sequences that erase a terminal line and move the cursor to its beginning, so that all earlier
# text in the line is gone.
_FRESH: Final = re.compile(
    r"\r(?:\x1b\[m)?\x1b\[[0-2]?K|\x1b\[2K(?:\r|\x1b\[[01]?G)|\x1b\[[01]?G\x1b\[[0-2]?K"
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")


def _line_as_displayed(line: str) -> str:
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
        line = line[max((fresh.end() for fresh in _FRESH.finditer(line)), default=0) :]
    if not ("\b" in line or "\x1b" in line):
        return _overlay(line) if "\r" in line else line
    # A line with more cursor movements than `_MAX_MOVES` is not readable output, so its escape
    # sequences and backspaces are removed without being interpreted.
    if line.count("\x1b") + line.count("\b") > _MAX_MOVES:
        return _overlay(strip_escapes(line).replace("\b", ""))
    cells: list[str] = []
    column = 0
    position = 0
    for move in _MOVES.finditer(line):
        column = _write(cells, column, line[position : move.start()])
        column = _apply_move(cells, column, move)
        position = move.end()
    _write(cells, column, line[position:])
    return "".join(cells)


# Maximum escape sequences and backspaces that are interpreted in one line.
_MAX_MOVES: Final = 20_000


def _overlay(line: str) -> str:
    """Return a line with carriage returns as a terminal shows it: each part overwrites the part
    before it, and the end of a longer earlier part stays visible."""
    *before, shown = line.split("\r")
    for part in reversed(before):
        if len(part) > len(shown):
            shown += part[len(shown) :]
    return shown


def _write(cells: list[str], column: int, text: str) -> int:
    if text and column > len(cells):
        cells.extend(" " * (column - len(cells)))
    cells[column : column + len(text)] = text
    return column + len(text)


def _apply_move(cells: list[str], column: int, move: re.Match[str]) -> int:
    """Apply a control character or escape sequence to a terminal line and return the new cursor
    column."""
    match move.lastgroup:
        case "cr":
            return 0
        case "bs":
            return max(0, column - 1)
        case "csi":
            return _csi(cells, column, move.group())
        case _:
            return column


# Maximum column to which output may move the cursor; a huge column number in hostile output must
# not create a huge line of blanks.
_MAX_WIDTH: Final = 4096


def _csi(cells: list[str], column: int, sequence: str) -> int:
    digits = sequence[2:-1]
    # Nine digits are enough for a column number, because no screen has a billion columns.
    count = int(digits[:9]) if digits.isascii() and digits.isdigit() else 0
    match sequence[-1]:
        case "K" if count == 0:
            del cells[column:]
        case "K" if count == 1:
            _write(cells, 0, " " * min(column + 1, len(cells), _MAX_WIDTH))
        case "K" if count == 2:
            cells.clear()
        case "G":
            return min(max(1, count), _MAX_WIDTH) - 1
        case "C":
            return min(column + max(1, count), max(_MAX_WIDTH, column))
        case "D":
            return max(0, column - max(1, count))
    return column


def describe_binary(data: bytes, size: int | None = None) -> str | None:
    """Return a description of binary data (`binary data, 1.2MB, a PNG image`), or None for text.
    `size` is the size of the complete data in bytes; None means that `data` is complete. A text
    that contains a few NUL bytes still counts as text."""
    sample = data[:8192]
    is_known = any(sample.startswith(magic) for magic, _ in _MAGIC)
    if not sample or not (looks_binary(sample) or (is_known and b"\0" in sample)):
        return None
    return describe_part(sample, len(data) if size is None else size)


def describe_part(data: bytes, size: int | None = None) -> str:
    """Return the description of data that is known to be binary."""
    kind = next((f", {name}" for magic, name in _MAGIC if data.startswith(magic)), "")
    return f"binary data, {human_size(len(data) if size is None else size)}{kind}"


def looks_binary(sample: bytes) -> bool:
    nuls = sample.count(0)
    text = drop_partial_end(sample).decode("utf-8", "replace")
    odd = sum(1 for c in text if c == "\ufffd" or (c < " " and ord(c) not in _PLAIN_CONTROLS))
    return nuls * 10 > len(sample) or odd * 10 > len(text) * 3


def split_at_binary(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Split binary data into the complete lines of text before the binary part, the binary part,
    and the lines of text after it. Data of a known format has no text before it."""
    text = decode(data)
    first, last = _UP_TO_FIRST_ODD.match(text), _UP_TO_LAST_ODD.match(text)
    if first is None or last is None:
        return data, b"", b""
    is_known = any(data.startswith(magic) for magic, _ in _MAGIC)
    start = 0 if is_known else len(text[: text.rfind("\n", 0, first.end()) + 1].encode())
    newline = text.find("\n", last.end())
    end = len(data) if newline < 0 else len(data) - len(text[newline + 1 :].encode())
    return data[:start], data[start:end], data[end:]


def human_size(size: int) -> str:
    """Format a size in bytes for human readers, such as `512B`, `128.1KB`, `2.5MB`. `human_size`
    shows at most one decimal and rounds up, so that a size above 128 KB is never shown as 128
    KB."""
    if size < 1024:
        return f"{size}B"
    unit, name = 1024, "KB"
    for larger in ("MB", "GB", "TB"):
        if _tenths(size, unit) < 10240:
            break
        unit, name = unit * 1024, larger
    whole, tenth = divmod(_tenths(size, unit), 10)
    return f"{whole}.{tenth}{name}" if tenth else f"{whole}{name}"


def _tenths(size: int, unit: int) -> int:
    return -(-size * 10 // unit)
