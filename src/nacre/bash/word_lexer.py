"""Lower half of the lexer: splits words into quotes, escapes, expansions, substitutions and arrays.

The upper half of the lexer, the module `lexer`, reads commands; the lower half calls the upper half
for the commands inside a substitution.
"""

import re
from typing import Final, Self

from nacre.bash.ansi_c import decode_ansi_c
from nacre.bash.tokens import (
    ASSIGNS,
    SUBSCRIPT,
    Array,
    Double,
    Frame,
    Parameter,
    Part,
    Quoted,
    Substitution,
    Sum,
    Text,
    TooComplex,
    WordToken,
)

MAX_TOKENS: Final = 20_000
MAX_DEPTH: Final = 60

BLANK: Final = re.compile(rb"(?:[ \t]|\\\n)*")
PLAIN: Final = re.compile(rb"[^ \t\n'\"\\$`|&;<>()\0]+")
_PARAMETER: Final = re.compile(rb"[A-Za-z_]\w*|\d+|[@*#?$!-]")
_EXPANSION: Final = re.compile(
    rb"([#!]?)([A-Za-z_]\w*|\d+|[@*?$!#-])(" + SUBSCRIPT + rb")?"
    rb"(:[-=?+]|[-=?+]|##|#|%%|%|//|/[#%]?|\^\^|\^|,,|,|@|:|(?=\}))"
)
_IN_DOUBLE: Final = re.compile(rb'[^"\\$`]+')
_IN_SUBSCRIPT: Final = re.compile(rb"[^\\$`]+")
_IN_BRACES: Final = re.compile(rb"[^}'\"\\$`]+")
_IN_SUM: Final = re.compile(rb"[^()'\"\\$`]+")
_BEGINS_EXTGLOB: Final = re.compile(rb"[?*+@!]\(")
_ESCAPED: Final = {b"$", b"`", b"\\"}  # characters that `\` escapes in backticks
_ESCAPED_2: Final = {*_ESCAPED, b'"'}  # characters that `\` escapes in backticks in double quotes
# Operators of `${...}` after which, inside double quotes, `'` is an ordinary character, as in
# `"${x:-it's}"`.
_TEXTUAL: Final = {b":-", b"-", b":=", b"=", b":+", b"+", b":?", b"?"}


class WordLexer:
    """Lexer for the words in `source[at:limit]`. Each method of the lexer moves the position `at`
    to the end of the text that it has read."""

    def __init__(
        self, source: bytes, at: int, limit: int, count: list[int], depth: int = 0
    ) -> None:
        self.source = source
        self.at = at
        self.limit = limit
        self.trouble: str | None = None
        # list with one element, the number of tokens so far, shared by all lexers of one script
        self._count = count
        self._depth = depth

    def frame(self, *, closes: bool) -> Frame:
        """Read commands up to the end of the text, or up to the `)` that closes a substitution."""
        raise NotImplementedError

    def word(self) -> WordToken:
        here = self.at
        parts: list[Part] = []
        before = self.trouble
        self.trouble = None
        assigns = ASSIGNS.match(self.source, here, self.limit)
        if assigns:
            self._assigned(parts, assigns)
        while self.at < self.limit:
            byte = self.source[self.at]
            if byte in b"<>" and self.source.startswith(b"(", self.at + 1):
                self._process(parts)
            elif (
                byte in b" \t\n|&;<>)"
                or (byte == 0x28 and not self._extglob(parts))
                or (byte != 0x28 and not self._piece(parts, PLAIN))
            ):
                break
        word = WordToken(here, self.at, parts, broken=self.trouble is not None, assigns=assigns)
        self.trouble = before or self.trouble
        return word

    def _assigned(self, parts: list[Part], assigns: re.Match[bytes]) -> None:
        """Read the `[subscript]` and the array `( ... )` of an assignment, if present."""
        if not self.source.startswith(b"(", assigns.end()):
            if assigns[2]:  # an array subscript may contain any character
                self._subscript(parts, assigns)
            return
        self._subscript(parts, assigns)
        begin = assigns.end()
        self.at = begin + 1
        self._enter()
        words: list[WordToken] = []
        while True:
            self.at = self._match_end(BLANK)
            if self.at >= self.limit:
                self._complain("an array is never closed")
                break
            byte = self.source[self.at]
            if byte == 0x29:
                self.at += 1
                break
            if byte == 0x0A:
                self.at += 1
            elif byte == 0x23:
                self._comment()
            else:
                self._tick()
                word = self.word()
                if word.end == word.start:
                    self._complain("an array contains a character that is not allowed in it")
                    self.at += 1
                else:
                    words.append(word)
        parts.append(Array(begin, self.at, words))
        self._depth -= 1

    def _subscript(self, parts: list[Part], assigns: re.Match[bytes]) -> None:
        """Read `name[subscript]=` and the substitutions in the subscript, because bash runs these
        substitutions."""
        parts.append(Text(self.at, assigns.end(), assigns[0]))
        if assigns[2] and re.search(rb"[$`]", assigns[2]):
            inside = self._inner(assigns.start(2), assigns.end(2))
            found: list[Part] = []
            inside.pieces(found, _IN_SUBSCRIPT, b"\\$`")
            parts.append(Sum(assigns.start(2), assigns.end(2), found))
        self.at = assigns.end()

    def _extglob(self, parts: list[Part]) -> bool:
        """Read an extended glob such as `@(a|b)` inside a word as unquoted text; return False if no
        extended glob begins at the current position."""
        if not self.at or not _BEGINS_EXTGLOB.match(self.source, self.at - 1, self.limit):
            return False
        if not parts or not isinstance(parts[-1], Text) or parts[-1].end != self.at:
            return False
        begin, open_ones = self.at, 0
        inner: list[Part] = []
        while self.at < self.limit:
            byte = self.source[self.at]
            if byte == 0x28:
                open_ones += 1
                self.at += 1
            elif byte == 0x29:
                open_ones -= 1
                self.at += 1
                if not open_ones:
                    parts.append(Text(begin, self.at, self.source[begin : self.at]))
                    parts.extend(each for each in inner if not isinstance(each, Text | Quoted))
                    return True
            elif byte == 0x0A or not self._piece(inner, _IN_SUM):
                break
        self.at = begin
        return False

    def _piece(self, parts: list[Part], plain: re.Pattern[bytes]) -> bool:
        """Read one part of a word, such as a quoted string or an expansion; return False if no part
        begins at the current position."""
        byte = self.source[self.at]
        if byte == 0x27:
            self._single(parts)
        elif byte == 0x22:
            self._double(parts)
        elif byte == 0x5C:
            self._escape(parts)
        elif byte == 0x24:
            self._dollar(parts, doubled=False)
        elif byte == 0x60:
            self._backticks(parts, doubled=False)
        else:
            found = plain.match(self.source, self.at, self.limit)
            if not found:
                return False
            parts.append(Text(self.at, found.end(), found[0]))
            self.at = found.end()
        return True

    def pieces(self, parts: list[Part], plain: re.Pattern[bytes], escapable: bytes) -> None:
        """Read the text and the expansions inside double quotes or a heredoc. The pattern `plain`
        matches ordinary text and must not match the byte that ends the quoted text."""
        while self.at < self.limit:
            byte = self.source[self.at]
            if byte == 0x5C:
                here = self.at
                after = self.source[here + 1 : min(here + 2, self.limit)]
                self.at = min(here + 2, self.limit)
                if after and after in escapable:
                    parts.append(Quoted(here, self.at, b"" if after == b"\n" else after))
                else:
                    parts.append(Quoted(here, self.at, self.source[here : self.at]))
            elif byte == 0x24:
                self._dollar(parts, doubled=True)
            elif byte == 0x60:
                self._backticks(parts, doubled=True)
            else:
                found = plain.match(self.source, self.at, self.limit)
                if not found:
                    return
                parts.append(Quoted(self.at, found.end(), found[0]))
                self.at = found.end()

    def _single(self, parts: list[Part]) -> None:
        here = self.at
        end = self.source.find(b"'", here + 1, self.limit)
        if end < 0:
            self._complain("a single quote is never closed")
            end = self.limit
        self.at = min(end + 1, self.limit)
        parts.append(Quoted(here, self.at, self.source[here + 1 : end]))

    def _double(self, parts: list[Part]) -> None:
        self._enter()
        here = self.at
        self.at += 1
        inside: list[Part] = []
        self.pieces(inside, _IN_DOUBLE, b'"\\$`\n')
        if self.at >= self.limit:
            self._complain("a double quote is never closed")
        self.at = min(self.at + 1, self.limit)
        parts.append(Double(here, self.at, inside))
        self._depth -= 1

    def _escape(self, parts: list[Part]) -> None:
        here = self.at
        self.at = min(here + 2, self.limit)
        after = self.source[here + 1 : self.at]
        if after != b"\n":  # a backslash before a newline joins two lines and yields no text
            parts.append(Quoted(here, self.at, after or b"\\"))

    def _dollar(self, parts: list[Part], *, doubled: bool) -> None:
        here = self.at
        after = self.source[here + 1 : min(here + 3, self.limit)]
        if after[:1] == b"(":
            self._parenthesis(parts)
        elif after[:1] == b"{":
            self._braces(parts, doubled=doubled)
        elif after[:1] == b"[":
            end = self.source.find(b"]", here, self.limit)
            self.at = self.limit if end < 0 else end + 1
            parts.append(Sum(here, self.at, []))
        elif after[:1] == b"'" and not doubled:
            self._ansi(parts)
        elif after[:1] == b'"' and not doubled:
            self.at += 1  # bash translates the text of `$"..."` and drops the dollar sign
            self._double(parts)
        else:
            name = _PARAMETER.match(self.source, here + 1, self.limit)
            if not name:
                self.at += 1
                parts.append(Quoted(here, here + 1, b"$"))
                return
            end = name.end() if not name[0].isdigit() else here + 2
            self.at = end
            parts.append(Parameter(here, end, self.source[here + 1 : end]))

    def _parenthesis(self, parts: list[Part]) -> None:
        here = self.at
        if self.source.startswith(b"$((", here):
            inside = self._sum(here + 3)
            if inside is not None:
                parts.append(Sum(here, self.at, inside))
                return
        self.at = here + 2
        parts.append(self._inside(here, b"$("))

    def _process(self, parts: list[Part]) -> None:
        here = self.at
        self.at += 2
        parts.append(self._inside(here, self.source[here : here + 2]))

    def _inside(self, here: int, opening: bytes) -> Substitution:
        frame = self.frame(closes=True)
        self.at = min(self.at + 1, self.limit)
        return Substitution(here, self.at, opening, frame)

    def _backticks(self, parts: list[Part], *, doubled: bool) -> None:
        here = self.at
        end = here + 1
        escapes = False
        while end < self.limit and self.source[end] != 0x60:
            if self.source[end] == 0x5C:
                end += 1
                escapes = escapes or self.source[end : end + 1] in (
                    _ESCAPED_2 if doubled else _ESCAPED
                )
            end += 1
        end = min(end, self.limit)
        if end >= self.limit:
            self._complain("a backtick is never closed")
        # bash removes the backslashes of escapes in backticks before it reads the text as commands,
        # so positions in the resulting text differ from positions in the script.
        if escapes:
            pattern = rb"\\([$`\\\"])" if doubled else rb"\\([$`\\])"
            text = re.sub(pattern, rb"\1", self.source[here + 1 : end])
            self._enter()
            frame = type(self)(text, 0, len(text), self._count, self._depth).frame(closes=False)
            self._depth -= 1
        else:
            frame = self._inner(here + 1, end).frame(closes=False)
        self.trouble = self.trouble or frame.trouble
        self.at = min(end + 1, self.limit)
        parts.append(Substitution(here, self.at, b"`", frame))

    def _braces(self, parts: list[Part], *, doubled: bool) -> None:
        self._enter()
        here = self.at
        shape = _EXPANSION.match(self.source, here + 2, self.limit)
        self.at = shape.end() if shape else here + 2
        operator = shape[4] if shape else b"?"
        argument: list[Part] = []
        quotes_are_text = doubled and operator in _TEXTUAL
        while self.at < self.limit and self.source[self.at] != 0x7D:
            if quotes_are_text and self.source[self.at] == 0x27:
                argument.append(Quoted(self.at, self.at + 1, b"'"))
                self.at += 1
            elif not self._piece(argument, _IN_BRACES):
                self.at += 1
        if self.at >= self.limit:
            self._complain("${ is never closed")
        self.at = min(self.at + 1, self.limit)
        self._depth -= 1
        if shape is None:
            parts.append(Parameter(here, self.at, b"", b"?", argument, b"", b"?"))
            return
        parts.append(
            Parameter(
                here, self.at, shape[2], operator, argument, (shape[3] or b"")[1:-1], shape[1]
            )
        )

    def _ansi(self, parts: list[Part]) -> None:
        here = self.at
        end = here + 2
        while end < self.limit and self.source[end] != 0x27:
            end += 2 if self.source[end] == 0x5C else 1
        if end >= self.limit:
            self._complain("a $' quote is never closed")
            end = self.limit
        self.at = min(end + 1, self.limit)
        parts.append(Quoted(here, self.at, decode_ansi_c(self.source[here + 2 : end])))

    def _sum(self, at: int) -> list[Part] | None:
        """Read an arithmetic expression up to its closing `))`; return None if the opening `((` is
        two separate parentheses."""
        self._enter()
        trouble, self.at = self.trouble, at
        parts: list[Part] = []
        open_ones = 0
        while self.at < self.limit:
            byte = self.source[self.at]
            if byte == 0x28:
                open_ones += 1
                self.at += 1
                if open_ones > MAX_DEPTH:
                    raise TooComplex(f"it is nested more than {MAX_DEPTH} deep")
            elif byte == 0x29 and open_ones:
                open_ones -= 1
                self.at += 1
            elif byte == 0x29:
                if self.source.startswith(b"))", self.at):
                    self.at += 2
                    self._depth -= 1
                    return parts
                break
            elif not self._piece(parts, _IN_SUM):
                self.at += 1
        self.trouble = trouble
        self._depth -= 1
        return None

    def _ends_word(self, at: int) -> bool:
        return (
            at >= self.limit
            or self.source[at] in b" \t\n|&;<>()"
            or (self.source.startswith(b"\\\n", at))
        )

    def _comment(self) -> None:
        end = self.source.find(b"\n", self.at, self.limit)
        self.at = self.limit if end < 0 else end

    # Helper methods for the positions, errors and limits of the lexer.

    def _inner(self, start: int, end: int) -> Self:
        return type(self)(self.source, start, end, self._count, self._depth)

    def _match_end(self, pattern: re.Pattern[bytes]) -> int:
        found = pattern.match(self.source, self.at, self.limit)
        return found.end() if found else self.at

    def _complain(self, problem: str) -> None:
        self.trouble = self.trouble or problem

    def _tick(self) -> None:
        self._count[0] += 1
        if self._count[0] > MAX_TOKENS:
            raise TooComplex(f"it has more than {MAX_TOKENS} words")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooComplex(f"it is nested more than {MAX_DEPTH} deep")
