"""What a rule is, and what it says when it matches."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from nacre.bash.commands import Analysis, ParsedCommand, Redirect, Word


class RuleMatch(Struct, frozen=True, kw_only=True):
    """A rule matched: what it saw, why that is bad, what to do instead."""

    words: tuple[Word, ...] = ()
    redirect: Redirect | None = None
    shown: tuple[bytes, ...]  # the words that matched, as text
    why: str
    instead: str


class RuleContext(Struct, frozen=True, kw_only=True):
    """What a rule may know beside the command."""

    home: bytes | None
    analysis: Analysis


CheckCommand = Callable[[ParsedCommand, RuleContext], Iterator[RuleMatch]]
CheckAnalysis = Callable[[RuleContext], Iterator[RuleMatch]]


class SafetyRule(Struct, frozen=True, kw_only=True):
    id: str
    summary: str  # one line, for people who choose
    programs: tuple[bytes, ...] = ()  # whom it is about; none: everybody
    check_command: CheckCommand | None = None
    check_analysis: CheckAnalysis | None = None

    @property
    def pack(self) -> str:
        return self.id.partition(".")[0]


def show_words(words: tuple[Word, ...]) -> tuple[bytes, ...]:
    return tuple(
        word.text if word.text is not None else (word.maybe or (b"?",))[0] for word in words
    )
