"""Words as bash would expand them, as far as that can be known before running.

A `Value` is what a piece of text may be. Braces first, then tildes, parameters and substitutions,
then splitting, as in bash; globs stay patterns, since only the disk knows what they match.
"""

import fnmatch
import re
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Final, NamedTuple, Protocol

from nacre.script import tokens
from nacre.script.commands import Word
from nacre.script.tokens import Array, Double, Parameter, Part, Quoted, Substitution, Sum, Text

_MOST_CHOICES: Final = 16
_MOST_WORDS: Final = 256
_SPECIAL: Final = re.compile(rb"[~{*?\[]")
_NAMED_TILDE: Final = re.compile(rb"([A-Za-z_]\w*\+?=)~")
_GLOB: Final = re.compile(rb"[*?]|\[[^\]]+\]|[?*+@!]\(")
_RANGE: Final = re.compile(rb"\{(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?\d+)?\}")


class Value(NamedTuple):
    """What something may be: one of `texts`, or, when it is open, something else as well."""

    texts: tuple[bytes, ...]
    open: bool = False

    @property
    def text(self) -> bytes | None:
        return self.texts[0] if len(self.texts) == 1 and not self.open else None


UNKNOWN: Final = Value((), open=True)
EMPTY: Final = Value((b"",))


def known(text: bytes) -> Value:
    return Value((text,))


def either(first: Value, second: Value) -> Value:
    """What may be one or the other."""
    if first == second:
        return first
    texts = tuple(dict.fromkeys(first.texts + second.texts))
    return Value(texts[:_MOST_CHOICES], first.open or second.open or len(texts) > _MOST_CHOICES)


class Scope(Protocol):
    """What is known where a word stands."""

    def variable(self, name: bytes) -> Value: ...

    def elements(self, name: bytes) -> tuple[Value, ...] | None:
        """Of an array, or of the positional parameters."""
        ...

    def assign(self, name: bytes, value: Value) -> None: ...

    def output(self, substitution: Substitution) -> Value:
        """What a substitution gives. Also the place where the commands in it are taken note of."""
        ...


def expand(word: tokens.Word, scope: Scope) -> list[Word]:
    """The words that bash would make of this one."""
    parts = word.parts
    if len(parts) == 1:
        only = parts[0]
        if type(only) is Text and (word.plain or not _SPECIAL.search(only.text)):
            text = only.text
            return [Word(start=word.start, end=word.end, text=text, prefix=text, bare=True)]
    if word.is_test or word.broken:
        visit(parts, scope)
        return [Word(start=word.start, end=word.end)]
    found = []
    for each in _braces(parts):
        for field in _fields(each, scope):
            found.append(field.word(word))
        if len(found) > _MOST_WORDS:
            break
    return found


def join(parts: list[Part], scope: Scope, *, tildes: bool = False) -> Value:
    """The parts as one text, neither split nor globbed: what an assignment gets."""
    field = _Field()
    for index, part in enumerate(parts):
        if isinstance(part, Text) and tildes and part.text.startswith(b"~") and not index:
            field.add(_tilde(part.text, scope))
        else:
            field.add(_value(part, scope))
    return field.value


def visit(parts: list[Part], scope: Scope) -> None:
    """Take note of the commands in a text whose value nobody asks for."""
    for part in parts:
        match part:
            case Substitution():
                scope.output(part)
            case Double(parts=inner) | Sum(parts=inner) | Parameter(argument=inner):
                visit(inner, scope)
            case Array(words=words):
                for word in words:
                    visit(word.parts, scope)


class _Field:
    """One word in the making."""

    def __init__(self) -> None:
        self.value = EMPTY
        self.prefix = b""
        self.there = False  # something is in it, be it an empty pair of quotes
        self.glob = False
        self.bare = True
        self._open = False

    def add(self, value: Value, beginning: bytes = b"") -> None:
        """`beginning` is how a value begins that is not known."""
        text = value.text
        if not self._open:
            self.prefix += beginning if text is None else text
            self._open = text is None
        mine = self.value.text
        if mine is not None and text is not None:
            self.value = Value((mine + text,))
            return
        texts = [a + b for a, b in product(self.value.texts, value.texts)][: _MOST_CHOICES + 1]
        open_ = self.value.open or value.open or len(texts) > _MOST_CHOICES
        self.value = Value(tuple(texts[:_MOST_CHOICES]), open_)

    def word(self, written: tokens.Word) -> Word:
        text = self.value.text
        return Word(
            start=written.start,
            end=written.end,
            text=text,
            maybe=() if text is not None else self.value.texts,
            prefix=self.prefix if text is None else text,
            glob=self.glob,
            bare=self.bare,
        )


def _fields(parts: list[Part], scope: Scope) -> Iterator[_Field]:
    field = _Field()
    for index, part in enumerate(parts):
        match part:
            case Text(text=text):
                named = _NAMED_TILDE.match(text) if not index else None
                if named:  # make PREFIX=~/x
                    field.add(known(named[1]))
                    text = text[named.end(1) :]
                if text.startswith(b"~") and not index and _whole_tilde(text, parts):
                    field.add(_tilde(text, scope))
                else:
                    field.add(known(text))
                field.glob = field.glob or bool(_GLOB.search(text))
                field.there = True
                continue
            case Quoted():
                field.there, field.bare = True, False
                field.add(known(part.text))
                continue
            case Double(parts=inner):
                field.there, field.bare = True, False
                pieces = _listed(inner, scope)
                if pieces is None:
                    for each in inner:
                        field.add(_value(each, scope))
                    continue
            case Substitution(opening=b"<(" | b">("):
                scope.output(part)
                field.there = True
                field.add(UNKNOWN, b"/dev/fd/")
                continue
            case _:
                pieces = _split(part, scope)
                if pieces is None:
                    field.add(_value(part, scope))
                    field.there = True
                    continue
                field.glob = field.glob or any(_GLOB.search(v.texts[0]) for v in pieces if v.texts)
        # Several words: the first goes on with what we have, the last with what follows.
        for at, piece in enumerate(pieces):
            if at:
                yield field
                field = _Field()
            field.add(piece)
            field.there = True
    if field.there:
        yield field


def _listed(inner: list[Part], scope: Scope) -> tuple[Value, ...] | None:
    """`"$@"` and `"${name[@]}"`: a word for each element."""
    if len(inner) != 1 or not isinstance(inner[0], Parameter):
        return None
    part = inner[0]
    if part.operator or part.odd:
        return None
    if part.name == b"@" or part.subscript == b"@":
        return scope.elements(part.name)
    return None


def _split(part: Part, scope: Scope) -> tuple[Value, ...] | None:
    """An unquoted expansion as the words that it falls into, if it does and that is known."""
    if isinstance(part, Parameter) and not part.operator and not part.odd:
        if part.name in (b"@", b"*") or part.subscript in (b"@", b"*"):
            elements = scope.elements(part.name)
            return elements and tuple(each for value in elements for each in _fallen(value))
        value = _parameter(part, scope)
    elif isinstance(part, Parameter):
        value = _parameter(part, scope)
    elif isinstance(part, Substitution) and part.opening in (b"$(", b"`"):
        value = scope.output(part)
    else:
        return None
    return _fallen(value)


def _fallen(value: Value) -> tuple[Value, ...]:
    """A text falls apart at blanks; what is not known stays one."""
    text = value.text
    if text is None or (text and not re.search(rb"[ \t\n]", text)):
        return (value,)
    return tuple(known(each) for each in text.split())


def _value(part: Part, scope: Scope) -> Value:
    match part:
        case Text(text=text) | Quoted(text=text):
            return known(text)
        case Double(parts=inner):
            return join(inner, scope)
        case Parameter():
            return _parameter(part, scope)
        case Substitution():
            value = scope.output(part)
            return value if part.opening in (b"$(", b"`") else UNKNOWN
        case Sum(parts=inner):
            visit(inner, scope)
        case Array(words=words):
            for word in words:
                visit(word.parts, scope)
    return UNKNOWN


def _parameter(part: Parameter, scope: Scope) -> Value:
    argument = join(part.argument, scope, tildes=True) if part.argument else EMPTY
    if part.odd or (part.subscript and part.subscript not in (b"0", b"@", b"*")):
        return UNKNOWN
    if part.subscript in (b"@", b"*") or part.name in (b"@", b"*"):
        elements = scope.elements(part.name)
        if elements is None or part.operator:
            return UNKNOWN
        texts = [each.text for each in elements]
        return UNKNOWN if None in texts else known(b" ".join(each for each in texts if each))
    return _operated(part, scope.variable(part.name), argument, scope)


def _operated(part: Parameter, value: Value, argument: Value, scope: Scope) -> Value:
    text = value.text
    match part.operator:
        case b"":
            return value
        case b":-" | b"-" | b":=" | b"=":
            if text is None:
                result = either(Value(value.texts, open=True), argument)
            else:
                result = value if text or part.operator in (b"-", b"=") else argument
            if part.operator.endswith(b"="):
                scope.assign(part.name, result)
            return result
        case b":+" | b"+":
            if text is None:
                return either(EMPTY, argument)
            return argument if text or part.operator == b"+" else EMPTY
        case b":?" | b"?":
            return value
        case b"#" | b"##" | b"%" | b"%%" if text is not None and argument.text is not None:
            return known(_trimmed(text, part.operator, argument.text))
        case _:
            return UNKNOWN


def _trimmed(text: bytes, operator: bytes, pattern: bytes) -> bytes:
    """`${x#pattern}` and kin."""
    lengths = range(len(text) + 1)
    for length in lengths if len(operator) == 1 else reversed(lengths):
        front = operator.startswith(b"#")
        piece = text[:length] if front else text[len(text) - length :]
        if fnmatch.fnmatchcase(piece.decode("latin-1"), pattern.decode("latin-1")):
            return text[length:] if front else text[: len(text) - length]
    return text


def _whole_tilde(text: bytes, parts: list[Part]) -> bool:
    """A tilde counts when all up to the first slash is unquoted."""
    return b"/" in text or b":" in text or len(parts) == 1


def _tilde(text: bytes, scope: Scope) -> Value:
    user, slash, rest = text[1:].partition(b"/")
    behind = slash + rest
    if b":" in text:  # bash has rules of its own for lists of paths
        return UNKNOWN
    if not user:
        home = scope.variable(b"HOME")
    elif user == b"root":
        home = known(b"/root")
    elif user in (b"+", b"-"):
        home = scope.variable(b"PWD" if user == b"+" else b"OLDPWD")
    else:  # only the system knows; there is one usual place
        home = Value((b"/home/" + user,), open=True)
    return Value(tuple(each + behind for each in home.texts), home.open)


def _braces(parts: list[Part]) -> list[list[Part]]:
    """Brace expansion, over the unquoted text of a word."""
    if not any(isinstance(part, Text) and b"{" in part.text for part in parts):
        return [parts]
    atoms: list[Part] = []
    for part in parts:
        if isinstance(part, Text):
            atoms.extend(Text(part.start, part.end, bytes([byte])) for byte in part.text)
        else:
            atoms.append(part)
    return [_melted(each) for each in _unbraced(atoms)]


def _unbraced(atoms: list[Part]) -> list[list[Part]]:
    for begin, atom in enumerate(atoms):
        if not _is(atom, b"{"):
            continue
        commas, end = _brace(atoms, begin)
        if end is None:
            continue
        ranged = _range(atoms[begin : end + 1]) if not commas else None
        if not commas and ranged is None:
            continue
        if ranged is None:
            edges = [begin, *commas, end]
            pieces = [atoms[a + 1 : b] for a, b in pairwise(edges)]
            middles = [each for piece in pieces for each in _unbraced(piece)]
        else:
            middles = ranged
        tails = _unbraced(atoms[end + 1 :])
        made = [atoms[:begin] + middle + tail for middle in middles for tail in tails]
        return made[:_MOST_WORDS]
    return [atoms]


def _brace(atoms: list[Part], begin: int) -> tuple[list[int], int | None]:
    """Where the commas of the brace at `begin` are, and its end."""
    commas: list[int] = []
    depth = 0
    for at in range(begin, len(atoms)):
        if _is(atoms[at], b"{"):
            depth += 1
        elif _is(atoms[at], b"}"):
            depth -= 1
            if not depth:
                return commas, at
        elif depth == 1 and _is(atoms[at], b","):
            commas.append(at)
    return [], None


def _range(atoms: list[Part]) -> list[list[Part]] | None:
    """`{1..3}`, `{a..c}`."""
    if not all(isinstance(atom, Text) for atom in atoms):
        return None
    text = b"".join(atom.text for atom in atoms if isinstance(atom, Text))
    found = _RANGE.fullmatch(text)
    if not found or found[0].count(b"..") > 1:
        return None
    start, end = atoms[0].start, atoms[-1].end
    first, last = found[1], found[2]
    if first.isalpha() and last.isalpha():
        low, high = first[0], last[0]
    elif first.isalpha() or last.isalpha() or len(first) > 6 or len(last) > 6:
        return None
    else:
        low, high = int(first), int(last)
    step = 1 if low <= high else -1
    numbers = range(low, high + step, step)[:_MOST_WORDS]
    made = [bytes([n]) if first.isalpha() else str(n).encode() for n in numbers]
    return [[Text(start, end, each)] for each in made]


def _melted(atoms: list[Part]) -> list[Part]:
    """Neighbouring unquoted text in one piece again."""
    made: list[Part] = []
    for atom in atoms:
        last = made[-1] if made else None
        if isinstance(atom, Text) and isinstance(last, Text):
            made[-1] = Text(last.start, atom.end, last.text + atom.text)
        elif isinstance(atom, Text) and isinstance(last, Parameter) and _goes_on(last, atom):
            made[-1] = Parameter(last.start, last.end + 1, last.name + atom.text)
        else:
            made.append(atom)
    return made


def _goes_on(parameter: Parameter, text: Text) -> bool:
    """Braces come first: of `$a{b,c}` bash makes `$ab $ac`."""
    bare = parameter.end - parameter.start == 1 + len(parameter.name)
    return bare and bool(re.fullmatch(rb"[A-Za-z_]\w*", parameter.name + text.text))


def _is(atom: Part, text: bytes) -> bool:
    return isinstance(atom, Text) and atom.text == text
