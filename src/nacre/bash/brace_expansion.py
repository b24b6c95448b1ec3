"""Brace expansion, as of `{a,b}` and `{1..3}`, in the unquoted text of a bash word."""

import re
from itertools import pairwise
from typing import Final

from nacre.bash.tokens import Parameter, Part, Text

MAX_WORDS: Final = 256
_RANGE: Final = re.compile(rb"\{(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?\}")
_MAX_BRACES: Final = 64
# A brace range of more than `MAX_WORDS` words is not expanded: it becomes a `Parameter` token with
# this `prefix`, which means that the value is unknown.
_UNKNOWN: Final = b"?"


def expand_braces(parts: list[Part]) -> list[list[Part]]:
    count = sum(part.text.count(b"{") for part in parts if isinstance(part, Text))
    if not 0 < count <= _MAX_BRACES:
        return [parts]
    atoms: list[Part] = []
    for part in parts:
        if isinstance(part, Text):
            atoms.extend(Text(part.start, part.end, bytes([byte])) for byte in part.text)
        else:
            atoms.append(part)
    return [_join_texts(each) for each in _expand_first_brace(atoms)]


def _expand_first_brace(atoms: list[Part]) -> list[list[Part]]:
    for begin, atom in enumerate(atoms):
        if not _is_text(atom, b"{"):
            continue
        commas, end = _find_brace(atoms, begin)
        if end is None:
            continue
        ranged = _expand_range(atoms[begin : end + 1]) if not commas else None
        if not commas and ranged is None:
            continue
        if ranged is None:
            edges = [begin, *commas, end]
            pieces = [atoms[a + 1 : b] for a, b in pairwise(edges)]
            middles = [each for piece in pieces for each in _expand_first_brace(piece)]
        else:
            middles = ranged
        tails = _expand_first_brace(atoms[end + 1 :])
        expanded = [atoms[:begin] + middle + tail for middle in middles for tail in tails]
        return expanded[: MAX_WORDS + 1]
    return [atoms]


def _find_brace(atoms: list[Part], begin: int) -> tuple[list[int], int | None]:
    """Return the indexes of the commas between the `{` at index `begin` and its closing `}`, and
    the index of that `}`, or None if the brace is not closed."""
    commas: list[int] = []
    depth = 0
    for at in range(begin, len(atoms)):
        if _is_text(atoms[at], b"{"):
            depth += 1
        elif _is_text(atoms[at], b"}"):
            depth -= 1
            if not depth:
                return commas, at
        elif depth == 1 and _is_text(atoms[at], b","):
            commas.append(at)
    return [], None


def _expand_range(atoms: list[Part]) -> list[list[Part]] | None:
    """Expand a brace range such as `{1..3}`, `{a..c}` or `{01..10..2}`; return None for other
    braces."""
    if not all(isinstance(atom, Text) for atom in atoms):
        return None
    found = _RANGE.fullmatch(b"".join(atom.text for atom in atoms if isinstance(atom, Text)))
    if not found or found[1].isalpha() != found[2].isalpha():
        return None
    start, end = atoms[0].start, atoms[-1].end
    letters = found[1].isalpha()
    low, high = (found[1][0], found[2][0]) if letters else (int(found[1]), int(found[2]))
    step = max(abs(int(found[3] or 1)), 1) * (1 if low <= high else -1)
    numbers = range(low, high + (1 if step > 0 else -1), step)
    if len(numbers) > MAX_WORDS:
        return [[Parameter(start, end, b"", prefix=_UNKNOWN)]]
    width = _width(found[1], found[2])
    expanded = [bytes([n]) if letters else b"%0*d" % (width, n) for n in numbers]
    return [[Text(start, end, each)] for each in expanded]


def _width(*ends: bytes) -> int:
    """Return the width to which the numbers of a brace range are padded with zeros, or 0 for no
    padding. A leading zero at either end of a brace range, as in `{01..10}`, pads every number of
    the range."""
    padded = any(re.match(rb"-?0\d", each) for each in ends)
    return max(map(len, ends)) if padded else 0


def _join_texts(atoms: list[Part]) -> list[Part]:
    """Merge neighbouring pieces of unquoted text in a word into one part."""
    expanded: list[Part] = []
    for atom in atoms:
        last = expanded[-1] if expanded else None
        if isinstance(atom, Text) and isinstance(last, Text):
            expanded[-1] = Text(last.start, atom.end, last.text + atom.text)
        elif (
            isinstance(atom, Text) and isinstance(last, Parameter) and _extend_parameter(last, atom)
        ):
            expanded[-1] = Parameter(last.start, last.end + 1, last.name + atom.text)
        else:
            expanded.append(atom)
    return expanded


def _extend_parameter(parameter: Parameter, text: Text) -> bool:
    """Return whether `text` becomes part of the variable name directly before it, as in `$a{b,c}`:
    bash expands braces before variables, so `$a{b,c}` becomes `$ab $ac`."""
    bare = parameter.end - parameter.start == 1 + len(parameter.name)
    return bare and bool(re.fullmatch(rb"[A-Za-z_]\w*", parameter.name + text.text))


def _is_text(atom: Part, text: bytes) -> bool:
    return isinstance(atom, Text) and atom.text == text
