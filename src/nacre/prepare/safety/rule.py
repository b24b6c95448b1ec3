"""Data types of safety rules and their matches."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from nacre.bash.commands import Analysis, ParsedCommand, Redirect, Word


class RuleMatch(Struct, frozen=True, kw_only=True):
    """Match of a safety rule: the matched words, the harm that they would do, and what to do
    instead."""

    words: tuple[Word, ...] = ()
    redirect: Redirect | None = None
    shown: tuple[bytes, ...]  # text of each word of the matched command
    why: str
    instead: str


class RuleContext(Struct, frozen=True, kw_only=True):
    """Facts that a safety rule may use besides the command that it checks."""

    home: bytes | None
    analysis: Analysis


CheckCommand = Callable[[ParsedCommand, RuleContext], Iterator[RuleMatch]]
CheckAnalysis = Callable[[RuleContext], Iterator[RuleMatch]]


class SafetyRule(Struct, frozen=True, kw_only=True):
    id: str
    summary: str  # one-line summary of the rule, for users who select rules
    programs: tuple[bytes, ...] = ()  # programs that the rule applies to; empty: all programs
    check_command: CheckCommand | None = None
    check_analysis: CheckAnalysis | None = None

    @property
    def pack(self) -> str:
        return self.id.partition(".")[0]


def show_words(words: tuple[Word, ...]) -> tuple[bytes, ...]:
    return tuple(
        word.text if word.text is not None else (word.maybe or (b"?",))[0] for word in words
    )
