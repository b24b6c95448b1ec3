"""Expansion of the words of a script as bash does it, as far as the result is known before the
script runs.

The expansions are applied in the order of bash: first braces, then tildes, parameters and
substitutions, then word splitting. Globs stay patterns, because their matches depend on the files
on disk.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

from nacre.bash import tokens
from nacre.bash.brace_expansion import MAX_WORDS, expand_braces
from nacre.bash.commands import Word
from nacre.bash.parameter_expansion import expand_parameter
from nacre.bash.possible_values import (
    EMPTY,
    IFS,
    MAX_CHOICES,
    UNKNOWN,
    Scope,
    Value,
    known_text,
    one_of,
)
from nacre.bash.tokens import Array, Double, Parameter, Part, Quoted, Substitution, Sum, Text

_SPECIAL: Final = re.compile(rb"[~{*?\[]")
_NAMED_TILDE: Final = re.compile(rb"([A-Za-z_]\w*\+?=)~")
_GLOB: Final = re.compile(rb"[*?]|\[[^\]]+\]|[?*+@!]\(")
_BLANK: Final = re.compile(rb"[ \t\n]")


def expand_word(word: tokens.WordToken, scope: Scope) -> list[Word]:
    """Return the words that bash would make of one word token by expansion and word splitting."""
    parts = word.parts
    if len(parts) == 1:
        only = parts[0]
        if type(only) is Text and (word.plain or not _SPECIAL.search(only.text)):
            text = only.text
            return [Word(start=word.start, end=word.end, text=text, prefix=text, bare=True)]
    if word.is_test or word.broken:
        visit_parts(parts, scope)
        return [Word(start=word.start, end=word.end)]
    found: list[Word] = []
    for each in expand_braces(parts):
        found.extend(field.word(word) for field in _build_words(each, scope))
        if len(found) > MAX_WORDS:
            return [*found[:MAX_WORDS], Word(start=word.start, end=word.end)]
    return found


def join_parts(parts: list[Part], scope: Scope, *, tildes: bool = False) -> Value:
    """Return the expanded parts of a word as one text, without word splitting or globbing, as in
    the value of an assignment."""
    field = _WordBuilder()
    for index, part in enumerate(parts):
        if isinstance(part, Text) and tildes:
            if b":~" in part.text:  # every entry of a path list (`a:~/b`) may begin with a tilde
                field.add(UNKNOWN)
                continue
            if part.text.startswith(b"~") and not index and _whole_tilde(part.text, parts):
                field.add(_tilde(part.text, scope))
                continue
        field.add(_value(part, scope))
    return field.value


def visit_parts(parts: list[Part], scope: Scope) -> None:
    """Record the commands inside the substitutions of a word, such as `$(cmd)`, without returning
    the expanded text of the word."""
    for part in parts:
        match part:
            case Substitution():
                scope.output(part)
            case Double(parts=inner) | Parameter(argument=inner):
                visit_parts(inner, scope)
            case Sum(start=start, end=end, parts=inner):
                visit_parts(inner, scope)
                scope.arithmetic(start, end)
            case Array(words=words):
                for word in words:
                    visit_parts(word.parts, scope)


class _WordBuilder:
    """Builder for one expanded word of a command."""

    def __init__(self) -> None:
        self.value = EMPTY
        self.prefix = b""
        # whether the expansion gives a word at all: `""` gives an empty word, an empty `$x` none
        self.there = False
        self.glob = False
        self.bare = True
        self.content: bytes | None = None
        self._open = False

    def add(self, value: Value, beginning: bytes = b"") -> None:
        """Append a value to the word that is being built. `beginning` is the known start of a value
        whose complete text is unknown."""
        text = value.text
        if not self._open:
            self.prefix += beginning if text is None else text
            self._open = text is None
        self.glob = self.glob or value.glob
        mine = self.value.text
        if mine is not None and text is not None:
            self.value = known_text(mine + text)
            return
        pairs = [*product(self.value.texts, value.texts)][: MAX_CHOICES + 1]
        open_ = self.value.open or value.open
        self.value = one_of(tuple(a + b for a, b in pairs), open=open_)
        self.value = self.value._replace(glob=self.glob)

    def word(self, written: tokens.WordToken) -> Word:
        only = self.value.texts if not self.value.open else ()
        text = only[0] if len(only) == 1 else None
        return Word(
            start=written.start,
            end=written.end,
            text=text,
            maybe=() if text is not None else self.value.texts,
            prefix=self.prefix if text is None else text,
            glob=self.glob,
            content=self.content,
            bare=self.bare,
        )


class _SplitWords(NamedTuple):
    """Words into which one unquoted expansion splits. The text of the expansion begins with a blank
    if `parted` is True, and ends with a blank if `parts` is True."""

    values: tuple[Value, ...]
    parted: bool = False
    parts: bool = False


def _build_words(parts: list[Part], scope: Scope) -> Iterator[_WordBuilder]:
    field = _WordBuilder()
    for index, part in enumerate(parts):
        match part:
            case Text(text=text):
                _add_unquoted(field, text, parts, scope, first=not index)
                continue
            case Quoted():
                field.there, field.bare = True, False
                field.add(known_text(part.text))
                continue
            case Double(parts=inner):
                listed = _list_elements(inner, scope)
                if listed is None:
                    field.there, field.bare = True, False
                    for each in inner:
                        field.add(_value(each, scope))
                    continue
                field.bare = False
                fallen = _SplitWords(listed)
            case Substitution(opening=b"<(" | b">("):
                field.there = True
                field.content = scope.output(part).text
                field.add(UNKNOWN, b"/dev/fd/")
                continue
            case _:
                fallen = _split(part, scope)
        if fallen.parted and field.there:
            yield field
            field = _WordBuilder()
        # If an expansion gives several words, its first word is joined to the text before the
        # expansion, and its last word is joined to the text after the expansion.
        for at, piece in enumerate(fallen.values):
            if at:
                yield field
                field = _WordBuilder()
            field.add(piece)
            field.glob = field.glob or any(_GLOB.search(text) for text in piece.texts)
            field.there = True
        if fallen.parts and field.there:
            yield field
            field = _WordBuilder()
    if field.there:
        yield field


def _add_unquoted(
    field: _WordBuilder, text: bytes, parts: list[Part], scope: Scope, *, first: bool
) -> None:
    named = _NAMED_TILDE.match(text) if first else None
    if named:  # bash expands the tilde after `=` in `make PREFIX=~/x`
        field.add(known_text(named[1]))
        text = text[named.end(1) :]
    if first and text.startswith(b"~") and _whole_tilde(text, parts):
        field.add(_tilde(text, scope))
    else:
        field.add(known_text(text))
    # Unquoted text that starts with `(` belongs to an extended glob such as `@(a|b)`.
    field.glob = field.glob or bool(_GLOB.search(text)) or text.startswith(b"(")
    field.there = True


def _list_elements(inner: list[Part], scope: Scope) -> tuple[Value, ...] | None:
    """Return the elements of the quoted string `"$@"` or `"${name[@]}"`; return None if the
    elements are unknown, or for any other quoted string."""
    if len(inner) != 1 or not isinstance(inner[0], Parameter):
        return None
    part = inner[0]
    if part.operator or part.prefix:
        return None
    if part.name == b"@" or part.subscript == b"@":
        return scope.elements(part.name)
    return None


def _split(part: Part, scope: Scope) -> _SplitWords:
    """Return the words into which bash splits an unquoted expansion; an expansion with an unknown
    value stays one word."""
    if isinstance(part, Parameter) and _is_list(part):
        elements = scope.elements(part.name)
        if elements is None:
            return _SplitWords((UNKNOWN,))
        return _SplitWords(
            tuple(e for value in elements for e in _split_value(value, scope).values)
        )
    value = _value(part, scope)
    quotes = isinstance(part, Parameter) and not all(type(each) is Text for each in part.argument)
    if quotes and (value.text is None or _BLANK.search(value.text)):
        return _SplitWords((UNKNOWN,))  # quoted text is not split, as in `${x:-"a b"}`
    return _split_value(value, scope)


def _is_list(part: Parameter) -> bool:
    whole = part.name in (b"@", b"*") or part.subscript in (b"@", b"*")
    return whole and not (part.operator or part.prefix)


def _split_value(value: Value, scope: Scope) -> _SplitWords:
    """Split the value of an expansion at blanks if its text is known; an unknown value stays one
    word."""
    text = value.text
    if text is None:
        return _SplitWords((value,))
    if scope.variable(b"IFS").text != IFS:
        return _SplitWords((value if text.isalnum() and not text.isdigit() else UNKNOWN,))
    if text and not _BLANK.search(text):
        return _SplitWords((value,))
    values = tuple(known_text(each) for each in text.split())
    return _SplitWords(values, bool(_BLANK.match(text)), bool(_BLANK.match(text[-1:])))


def _value(part: Part, scope: Scope) -> Value:
    match part:
        case Text(text=text) | Quoted(text=text):
            return known_text(text)
        case Double(parts=inner):
            return join_parts(inner, scope)
        case Parameter():
            return _parameter(part, scope)
        case Substitution():
            value = scope.output(part)
            return value if part.opening in (b"$(", b"`") else UNKNOWN
        case Sum() | Array():
            visit_parts([part], scope)
    return UNKNOWN


def _parameter(part: Parameter, scope: Scope) -> Value:
    argument = join_parts(part.argument, scope, tildes=True) if part.argument else EMPTY
    if part.subscript not in (b"@", b"*") and part.name not in (b"@", b"*"):
        return expand_parameter(part, argument, scope)
    elements = scope.elements(part.name)
    if elements is None or part.operator or part.prefix:
        return UNKNOWN
    texts = [each.text for each in elements]
    joins = part.name == b"*" or part.subscript == b"*" or len(elements) < 2
    if not joins or None in texts or scope.variable(b"IFS").text != IFS:
        return UNKNOWN
    return known_text(b" ".join(each or b"" for each in texts))


def _whole_tilde(text: bytes, parts: list[Part]) -> bool:
    """Return whether the text from a leading `~` up to the first slash is unquoted, so that bash
    expands the tilde."""
    return b"/" in text or b":" in text or len(parts) == 1


def _tilde(text: bytes, scope: Scope) -> Value:
    user, slash, rest = text[1:].partition(b"/")
    if b":" in text:  # bash has special rules for tildes in path lists such as `~/a:~/b`
        return UNKNOWN
    if not user:
        home = scope.variable(b"HOME")
    elif user == b"root":
        home = known_text(b"/root")
    elif user in (b"+", b"-"):
        home = scope.variable(b"PWD" if user == b"+" else b"OLDPWD")
    else:  # home of another user: usually /home/NAME, but the user database may name another path
        home = Value((b"/home/" + user,), open=True)
    return Value(tuple(each + slash + rest for each in home.texts), home.open)
