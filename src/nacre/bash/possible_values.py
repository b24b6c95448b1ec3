"""Values that a text may have, as far as they can be known before the script runs."""

from typing import Final, NamedTuple, Protocol

from nacre.bash.tokens import Substitution

MAX_CHOICES: Final = 16
IFS: Final = b" \t\n"  # bytes at which bash splits unquoted expansions by default
_LONGEST: Final = 64 * 1024


class Value(NamedTuple):
    """Set of possible texts. `open` means that other texts are possible, too. With `glob` the texts
    are patterns, and the value is a match of one of the patterns."""

    texts: tuple[bytes, ...]
    open: bool = False
    glob: bool = False

    @property
    def text(self) -> bytes | None:
        return self.texts[0] if len(self.texts) == 1 and not (self.open or self.glob) else None


UNKNOWN: Final = Value((), open=True)
EMPTY: Final = Value((b"",))
# an unset variable: the empty text, unless an operator such as `:-` supplies another text
UNSET: Final = Value((b"",), open=True)


def known_text(text: bytes) -> Value:
    """Return a known text as a value. A text longer than `_LONGEST` counts as unknown."""
    return Value((text,)) if len(text) <= _LONGEST else UNKNOWN


def one_of(texts: tuple[bytes, ...], *, open: bool, glob: bool = False) -> Value:
    """Return a value with at most `MAX_CHOICES` of the texts. Dropped texts make the value open."""
    distinct = tuple(dict.fromkeys(each for each in texts if len(each) <= _LONGEST))[:MAX_CHOICES]
    return Value(distinct, open or len(distinct) < len({*texts}), glob)


def merge_values(first: Value, second: Value) -> Value:
    """Return a value that may be either of two values."""
    if first == second:
        return first
    texts = first.texts + second.texts
    open_ = first.open or second.open
    # An empty text is dropped: it is often a default at the start of a script, replaced later.
    if open_:
        texts = tuple(each for each in texts if each)
    return one_of(texts, open=open_, glob=first.glob or second.glob)


class Scope(Protocol):
    """Interface to the shell state known at the position of a word."""

    def variable(self, name: bytes) -> Value: ...

    def elements(self, name: bytes) -> tuple[Value, ...] | None:
        """Return the elements of an array or of the positional parameters; None if unknown."""
        ...

    def assign(self, name: bytes, value: Value) -> None: ...

    def arithmetic(self, start: int, end: int) -> None:
        """Record the variables that an arithmetic expression assigns."""
        ...

    def output(self, substitution: Substitution) -> Value:
        """Return the output of a substitution, and record the commands in the substitution."""
        ...
