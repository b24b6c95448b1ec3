"""Values that a variable or another text of a script may have, as far as they can be known before
the script runs."""

from typing import Final, NamedTuple, Protocol

from nacre.bash.tokens import Substitution

MAX_CHOICES: Final = 16
IFS: Final = b" \t\n"  # bytes at which bash splits unquoted expansions by default
_LONGEST: Final = 64 * 1024


class Value(NamedTuple):
    """Set of texts that a variable or an expansion may have. `open` says whether texts that are not
    in the set `texts` are possible, too. If `glob` is true, `texts` are glob patterns, and the
    actual value of the variable or expansion matches one of these patterns."""

    texts: tuple[bytes, ...]
    open: bool = False
    glob: bool = False

    @property
    def text(self) -> bytes | None:
        return self.texts[0] if len(self.texts) == 1 and not (self.open or self.glob) else None


UNKNOWN: Final = Value((), open=True)
EMPTY: Final = Value((b"",))
# value of an unset variable: the empty text, unless an operator such as `:-` supplies another text
UNSET: Final = Value((b"",), open=True)


def known_text(text: bytes) -> Value:
    """Return a `Value` with one possible text, or `UNKNOWN` if the text is longer than `_LONGEST`
    bytes."""
    return Value((text,)) if len(text) <= _LONGEST else UNKNOWN


def one_of(texts: tuple[bytes, ...], *, open: bool, glob: bool = False) -> Value:
    """Return a `Value` with at most `MAX_CHOICES` of the possible texts in `texts`; if some texts
    were dropped, the value is open (other texts are possible)."""
    distinct = tuple(dict.fromkeys(each for each in texts if len(each) <= _LONGEST))[:MAX_CHOICES]
    return Value(distinct, open or len(distinct) < len({*texts}), glob)


def merge_values(first: Value, second: Value) -> Value:
    """Return the `Value` of a variable that has either the value `first` or the value `second`."""
    if first == second:
        return first
    texts = first.texts + second.texts
    open_ = first.open or second.open
    # If a variable may have unknown texts, `merge_values` drops the empty text from the variable's
    # known texts, because scripts often assign an empty default first and the real value later.
    if open_:
        texts = tuple(each for each in texts if each)
    return one_of(texts, open=open_, glob=first.glob or second.glob)


class Scope(Protocol):
    """Interface for the expansion of a word: gives access to what is known about the shell's
    variables at the word's position in the script."""

    def variable(self, name: bytes) -> Value: ...

    def elements(self, name: bytes) -> tuple[Value, ...] | None:
        """Return the elements of an array or of the positional parameters; None if unknown."""
        ...

    def assign(self, name: bytes, value: Value) -> None: ...

    def arithmetic(self, start: int, end: int) -> None:
        """Record which variables the arithmetic expression from `start` to `end` assigns."""
        ...

    def output(self, substitution: Substitution) -> Value:
        """Return the predicted output of a command or process substitution, and record the
        commands in the substitution."""
        ...
