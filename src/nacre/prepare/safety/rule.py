"""What a rule is, and what it says when it matches."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from nacre.script.commands import Command, Reading, Redirect, Word


class Hit(Struct, frozen=True, kw_only=True):
    """A rule matched: what it saw, why that is bad, what to do instead."""

    words: tuple[Word, ...] = ()
    redirect: Redirect | None = None
    shown: tuple[bytes, ...]  # the words that matched, as text
    why: str
    instead: str


class Around(Struct, frozen=True, kw_only=True):
    """What a rule may know beside the command."""

    home: bytes | None
    reading: Reading


OfCommand = Callable[[Command, Around], Iterator[Hit]]
OfReading = Callable[[Around], Iterator[Hit]]


class Rule(Struct, frozen=True, kw_only=True):
    id: str
    says: str  # one line, for people who choose
    programs: tuple[bytes, ...] = ()  # whom it is about; none: everybody
    command: OfCommand | None = None
    reading: OfReading | None = None

    @property
    def pack(self) -> str:
        return self.id.partition(".")[0]


def shown(words: tuple[Word, ...]) -> tuple[bytes, ...]:
    return tuple(
        word.text if word.text is not None else (word.maybe or (b"?",))[0] for word in words
    )
