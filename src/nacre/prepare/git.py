"""What a git command line says, as git itself would take it apart."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from nacre.script.commands import Command, Word

_VALUED: Final = {
    *(b"-C", b"-c", b"--git-dir", b"--work-tree", b"--namespace", b"--exec-path"),
    *(b"--super-prefix", b"--config-env", b"--attr-source", b"--list-cmds"),
}


class Git(Struct, frozen=True, kw_only=True):
    directories: tuple[bytes | None, ...]  # of each -C, in order
    settings: tuple[Word, ...]  # of each -c
    place: int  # of the subcommand, among the words
    subcommand: bytes
    arguments: tuple[Word, ...]


def git(command: Command) -> Git | None:
    """The parts of a git command, if it is one and its subcommand is known."""
    if command.name != b"git":
        return None
    directories: list[bytes | None] = []
    settings: list[Word] = []
    at = 1
    words = command.words
    while at < len(words):
        text = words[at].text
        if text is None:
            if not words[at].prefix.startswith(b"-"):
                return None
        elif not text.startswith(b"-"):
            return Git(
                directories=tuple(directories),
                settings=tuple(settings),
                place=at,
                subcommand=text,
                arguments=words[at + 1 :],
            )
        elif text in _VALUED and at + 1 < len(words):
            if text == b"-C":
                directories.append(words[at + 1].text)
            elif text == b"-c":
                settings.append(words[at + 1])
            at += 1
        elif text in (b"--help", b"-h", b"--version", b"-v"):
            return None
        at += 1
    return None


class Flag(Struct, frozen=True, kw_only=True):
    """One option of a subcommand: its name, a letter with a dash or a long name in full."""

    name: bytes
    word: Word


def flags(
    arguments: tuple[Word, ...], valued: frozenset[bytes], known: frozenset[bytes]
) -> Iterator[Flag]:
    """The options among these words. `valued` take one; `known` are long names that may be
    shortened, as git allows it."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        text = word.text if word.text is not None else word.prefix
        if text == b"--":
            return
        if text.startswith(b"--"):
            name, equals, _ = text.partition(b"=")
            full = [each for each in known | valued if each.startswith(name)]
            name = name if name in full or len(full) != 1 else full[0]
            yield Flag(name=name, word=word)
            at += name in valued and not equals
        elif text.startswith(b"-") and len(text) > 1:
            for place in range(1, len(text)):
                letter = b"-" + text[place : place + 1]
                yield Flag(name=letter, word=word)
                if letter in valued:
                    at += place == len(text) - 1
                    break
        at += 1


def operands(arguments: tuple[Word, ...], valued: frozenset[bytes]) -> Iterator[Word]:
    """The words that are no options."""
    at, options = 0, True
    while at < len(arguments):
        word = arguments[at]
        text = word.text if word.text is not None else word.prefix
        if options and text == b"--":
            options = False
        elif options and text.startswith(b"-") and len(text) > 1:
            last = text if text.startswith(b"--") else b"-" + text[-1:]
            at += last in valued and b"=" not in text
        else:
            yield word
        at += 1
