"""Splitting a command's words into options and operands, by the conventions of most programs."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from nacre.bash.commands import Word, known_prefix

NONE: Final[frozenset[bytes]] = frozenset()


class Flag(Struct, frozen=True, kw_only=True):
    """One command-line option: `-x`, or a long name such as `--force`, spelled out if it was
    abbreviated."""

    name: bytes
    word: Word


def find_flags(
    words: Sequence[Word],
    valued: frozenset[bytes] = NONE,
    known: frozenset[bytes] = NONE,
    glued: frozenset[bytes] = NONE,
) -> Iterator[Flag]:
    """Yield the options among the words of a command.

    An option in the set `valued` takes a value: the text attached to the option, or else the next
    word. An option in the set `glued` takes only attached text as its value. `known` lists long
    option names; an unambiguous abbreviation of one is yielded under the full name.
    """
    at = 0
    while at < len(words):
        word = words[at]
        text = known_prefix(word)
        if text == b"--":
            return
        if text.startswith(b"--"):
            name, equals, _ = text.partition(b"=")
            full = [each for each in known | valued if each.startswith(name)]
            name = full[0] if len(full) == 1 and name not in full else name
            yield Flag(name=name, word=word)
            at += name in valued and not equals
        elif text.startswith(b"-") and len(text) > 1:
            for place in range(1, len(text)):
                letter = b"-" + text[place : place + 1]
                yield Flag(name=letter, word=word)
                if letter in valued | glued:
                    at += letter in valued and place == len(text) - 1
                    break
        at += 1


def find_operands(words: Sequence[Word], valued: frozenset[bytes] = NONE) -> Iterator[Word]:
    """Yield the operands of a command: the words that are neither options nor values of options. An
    option may follow an operand, but all words after `--` are operands."""
    at = 0
    while at < len(words):
        text = known_prefix(words[at])
        if text == b"--":
            yield from words[at + 1 :]
            return
        if text.startswith(b"-") and len(text) > 1:
            last = text if text.startswith(b"--") else b"-" + text[-1:]
            at += last in valued
        else:
            yield words[at]
        at += 1


def has_flag(words: Sequence[Word], letters: bytes, *names: bytes) -> bool:
    """Return whether the words of a command contain one of these options. An option letter is also
    found in a bundle such as `-rf`, and a long name also in abbreviated form."""
    for word in words:
        text = known_prefix(word).partition(b"=")[0]
        if text == b"--":
            return False
        if text.startswith(b"--"):
            if len(text) > 2 and any(name.startswith(text) for name in names):
                return True
        elif text.startswith(b"-") and any(letter in letters for letter in text[1:]):
            return True
    return False
