"""What a piece of text may be, as far as it can be known before running."""

from typing import Final, NamedTuple, Protocol

from nacre.bash.tokens import Substitution

MAX_CHOICES: Final = 16
IFS: Final = b" \t\n"  # what unquoted expansions fall apart at, unless somebody changed it
_LONGEST: Final = 64 * 1024


class Value(NamedTuple):
    """One of `texts`, or, when it is open, something else as well. With `glob` they are patterns,
    and it is what one of them matches."""

    texts: tuple[bytes, ...]
    open: bool = False
    glob: bool = False

    @property
    def text(self) -> bytes | None:
        return self.texts[0] if len(self.texts) == 1 and not (self.open or self.glob) else None


UNKNOWN: Final = Value((), open=True)
EMPTY: Final = Value((b"",))
UNSET: Final = Value((b"",), open=True)  # empty, but an operator may put something there


def known_text(text: bytes) -> Value:
    """A text; one that is too long to be carried around is not known."""
    return Value((text,)) if len(text) <= _LONGEST else UNKNOWN


def one_of(texts: tuple[bytes, ...], *, open: bool, glob: bool = False) -> Value:
    """The texts that there is room for; the rest is open."""
    distinct = tuple(dict.fromkeys(each for each in texts if len(each) <= _LONGEST))[:MAX_CHOICES]
    return Value(distinct, open or len(distinct) < len({*texts}), glob)


def merge_values(first: Value, second: Value) -> Value:
    """What may be one or the other."""
    if first == second:
        return first
    texts = first.texts + second.texts
    open_ = first.open or second.open
    if open_:  # a default that something else may have replaced: scripts begin like that
        texts = tuple(each for each in texts if each)
    return one_of(texts, open=open_, glob=first.glob or second.glob)


class Scope(Protocol):
    """What is known where a word stands."""

    def variable(self, name: bytes) -> Value: ...

    def elements(self, name: bytes) -> tuple[Value, ...] | None:
        """Of an array, or of the positional parameters."""
        ...

    def assign(self, name: bytes, value: Value) -> None: ...

    def arithmetic(self, start: int, end: int) -> None:
        """Take note of what a sum assigns."""
        ...

    def output(self, substitution: Substitution) -> Value:
        """What a substitution gives. Also where the commands in it are taken note of."""
        ...
