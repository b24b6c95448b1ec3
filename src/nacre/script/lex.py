"""Bytes to tokens, with bash's own rules of quoting, and every position exact.

A `Frame` is a stretch of text that bash reads as commands: the script itself, or the inside of a
substitution. It has its words, taken apart into the parts that bash would expand, its redirections,
and a *skeleton*: text of the same length in which every word is a run of underscores and everything
else but keywords and operators is blank. The skeleton is what tree-sitter gets to see. Quotes,
heredocs (whose nodes swallow whatever follows on their line), newlines and arithmetic cannot
confuse it that way.

Never raises for what the text says: what cannot be read is `Frame.trouble`, and reading goes on
as far as it can. `Bomb` is raised for text that is too much to read.
"""

import re
from typing import Final

from msgspec import Struct

MOST_TOKENS: Final = 20_000
DEEPEST: Final = 60

_BLANK: Final = re.compile(rb"(?:[ \t]|\\\n)*")
_PLAIN: Final = re.compile(rb"[^\s'\"\\$`|&;<>()\0]+")
_OPERATOR: Final = re.compile(rb"\|\||\|&|\||&&|;;&|;;|;&|&(?!>)|;|\n|[()]")
_REDIRECT: Final = re.compile(rb"(?:\d+|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<|>)")
_SUBSCRIPT: Final = rb"\[(?:[^\[\]\"'\n]|\"[^\"]*\"|'[^']*'|\[[^\]]*\])*\]"
ASSIGNS: Final = re.compile(rb"([A-Za-z_]\w*)(" + _SUBSCRIPT + rb")?(\+?=)")
_PARAMETER: Final = re.compile(rb"[A-Za-z_]\w*|\d+|[@*#?$!-]")
_EXPANSION: Final = re.compile(
    rb"([#!]?)([A-Za-z_]\w*|\d+|[@*?$!#-])(" + _SUBSCRIPT + rb")?"
    rb"(:[-=?+]|[-=?+]|##|#|%%|%|//|/[#%]?|\^\^|\^|,,|,|@|:|(?=\}))"
)
_IN_DOUBLE: Final = re.compile(rb'[^"\\$`]+')
_IN_HEREDOC: Final = re.compile(rb"[^\\$`]+")
_IN_BRACES: Final = re.compile(rb"[^}'\"\\$`]+")
_IN_TEST: Final = re.compile(rb"[^\s'\"\\$`]+")
_IN_SUM: Final = re.compile(rb"[^()'\"\\$`]+")
_IN_NEXT: Final = re.compile(rb"\s*in\s")
_OPTION_OF_TIME: Final = re.compile(rb"(?:[ \t]|\\\n)+-p(?=\s)")
_NAME_OF_COPROCESS: Final = re.compile(rb"[ \t]+[A-Za-z_]\w*(?=[ \t]+(?:\{|\(|if |while |for ))")
_PREFIXES: Final = {b"time": _OPTION_OF_TIME, b"coproc": _NAME_OF_COPROCESS, b"!": _BLANK}
_BEGINS_EXTGLOB: Final = re.compile(rb"[?*+@!]\(")

# Words that mean something where a command may begin, and whether another may begin after them.
_KEYWORDS: Final = {
    *(b"if", b"then", b"else", b"elif", b"fi", b"while", b"until", b"do", b"done"),
    *(b"for", b"select", b"case", b"esac", b"{", b"}", b"!", b"function", b"time", b"coproc"),
    *(b"[[", b"((", b"in"),
}
_OPENING: Final = {b"if", b"while", b"until", b"for", b"select", b"case", b"{"}
_CLOSING: Final = {b"fi", b"done", b"esac", b"}"}
_ESCAPED: Final = {b"$", b"`", b"\\"}  # in backticks
_ESCAPED_2: Final = {*_ESCAPED, b'"'}  # in backticks in double quotes
_FOLLOWING: Final = {*_CLOSING, b"then", b"do", b"else", b"elif"}


class Bomb(Exception):
    """The text is too large or too deep to be read; the message says which."""


class Text(Struct):
    """Unquoted text as written; it may hold a tilde, braces and globs."""

    start: int
    end: int
    text: bytes


class Quoted(Struct):
    """Text that stands for itself: escaped, or in single quotes, quotes resolved."""

    start: int
    end: int
    text: bytes


class Double(Struct):
    """Double quotes and what is between them."""

    start: int
    end: int
    parts: "list[Part]"


class Parameter(Struct):
    """`$name` or `${name…}`."""

    start: int
    end: int
    name: bytes
    operator: bytes = b""
    argument: "list[Part]" = []
    subscript: bytes = b""
    odd: bool = False  # a length, an indirection: the value is not the name's own


class Sum(Struct):
    """Arithmetic; only the substitutions in it are of interest."""

    start: int
    end: int
    parts: "list[Part]"


class Substitution(Struct):
    """`$( )`, backticks, `<( )`, `>( )`."""

    start: int
    end: int
    opening: bytes
    frame: "Frame"


class Array(Struct):
    """The right side of `name=( … )`."""

    start: int
    end: int
    words: "list[Word]"


Part = Text | Quoted | Double | Parameter | Sum | Substitution | Array


class Word(Struct):
    """A word as written. `keyword` when bash would take it for a part of its grammar."""

    start: int
    end: int
    parts: list[Part]
    broken: bool = False  # the text ends inside it
    is_test: bool = False  # all of [[ … ]] or (( … ))


class Heredoc(Struct):
    start: int  # of the body
    end: int  # where the line of the delimiter begins
    quoted: bool
    closed: bool
    strips: bool  # <<- : leading tabs go
    parts: list[Part]


class Redirection(Struct):
    start: int
    end: int
    descriptor: bytes  # as written: digits, {name} or nothing
    operator: bytes
    target: Word
    heredoc: Heredoc | None = None


Token = Word | Redirection


class Frame(Struct):
    """Text that bash reads as commands."""

    source: bytes
    start: int
    end: int
    tokens: list[Token]  # in order; words that are grammar are not among them
    skeleton: bytes  # as long as the frame, all on one line
    lines: list[int]  # where a line begins that could be the first of a script
    trouble: str | None = None


def lex(source: bytes) -> Frame:
    """Raises Bomb."""
    return _Lexer(source, 0, len(source), [0]).frame(closes=False)


class _Lexer:
    """One pass over `source[at:limit]`. Methods leave `at` behind what they have read."""

    def __init__(
        self, source: bytes, at: int, limit: int, count: list[int], depth: int = 0
    ) -> None:
        self.source = source
        self.at = at
        self.limit = limit
        self.trouble: str | None = None
        self._count = count  # of tokens, shared by all that read one script
        self._depth = depth

    # Commands

    def frame(self, *, closes: bool) -> Frame:
        """Everything up to the end, or up to the `)` that closes a substitution."""
        self._enter()
        begin, before = self.at, self.trouble
        self.trouble = None
        grammar = _Grammar()
        tokens: list[Token] = []
        marks: list[tuple[int, bytes]] = []
        lines: list[int] = []
        pending: list[Redirection] = []
        while True:
            self.at = self._match_end(_BLANK)
            if self.at >= self.limit:
                if closes:
                    self._complain("a parenthesis is never closed")
                break
            here = self.at
            byte = self.source[here]
            if byte == 0x23:  # '#'
                self._comment()
                continue
            self._tick()
            operator = _OPERATOR.match(self.source, here, self.limit)
            if operator:
                text = operator[0]
                if closes and text == b")" and grammar.closes_frame():
                    break
                if text == b"(" and grammar.expects and self._test(b"((", tokens, marks, grammar):
                    continue
                if text == b"(" and grammar.after == b"for" and self._for_sum(tokens, marks):
                    grammar.word()
                    continue
                self.at = operator.end()
                if text == b"\n":
                    if grammar.ends_command() and not self._in_follows(grammar):
                        marks.append((here, b";"))
                        lines.append(self.at)
                else:
                    if text.startswith(b";") and marks and marks[-1] == (here - 1, b";"):
                        marks.pop()  # a newline before it; together they would be another operator
                    marks.append((here, text))
                grammar.operator(text)
                if grammar.depth > DEEPEST:
                    raise Bomb(f"it is nested more than {DEEPEST} deep")
                if text == b"\n" and pending:
                    self._heredocs(pending)
                continue
            redirect = _REDIRECT.match(self.source, here, self.limit)
            if redirect and not self._substitutes(redirect):
                token = self._redirection(redirect)
                tokens.append(token)
                if token.operator in (b"<<", b"<<-"):
                    pending.append(token)
                width = self.at - here
                if grammar.closed:
                    marks.append((here, b">" + b"_" * (width - 1)))
                else:
                    marks.append((here, b"_" * width))
                    grammar.word()
                continue
            self._word_or_keyword(grammar, tokens, marks)
        if pending:
            self._complain("a heredoc has no body")
            for each in pending:
                each.heredoc = Heredoc(self.at, self.at, True, False, False, [])
        skeleton = bytearray(b" ") * (self.at - begin)
        for position, text in marks:
            skeleton[position - begin : position - begin + len(text)] = text
        frame = Frame(self.source, begin, self.at, tokens, bytes(skeleton), lines, self.trouble)
        self.trouble = before or self.trouble
        self._depth -= 1
        return frame

    def _word_or_keyword(
        self, grammar: "_Grammar", tokens: list[Token], marks: list[tuple[int, bytes]]
    ) -> None:
        here = self.at
        plain = _PLAIN.match(self.source, here, self.limit)
        text = plain[0] if plain and self._ends_word(plain.end()) else b""
        if text in _KEYWORDS and grammar.takes(text):
            if text == b"[[":
                self._test(b"[[", tokens, marks, grammar)
                return
            self.at = here + len(text)
            if text in _PREFIXES:  # to the grammar they are not there
                self._skip(_PREFIXES[text])
                grammar.keyword(text)
                return
            missing = grammar.closed and text in _FOLLOWING
            if text == b"do" and grammar.after == b"for+":
                missing = marks[-1][1] != b";"
            if missing and self.source[here - 1] in b" \t":
                marks.append((here - 1, b";"))  # bash needs none here, the grammar does
            if text != b"in" or grammar.after == b"case+" or not self._no_words_follow():
                marks.append((here, text))
            grammar.keyword(text)
            if grammar.depth > DEEPEST:
                raise Bomb(f"it is nested more than {DEEPEST} deep")
            return
        word = self.word()
        if word.end == word.start:  # a byte that can begin nothing
            self._complain(f"{self.source[here : here + 1]!r} stands where no word can")
            self.at = word.end = here + 1
        tokens.append(word)
        marks.append((here, b"_" * (word.end - here)))
        grammar.word()

    def _no_words_follow(self) -> bool:
        """`for x in; do`: the same to the grammar as `for x; do`."""
        after = self.source[self._match_end(_BLANK) : self.limit][:1]
        return after in (b";", b"\n", b"")

    def _in_follows(self, grammar: "_Grammar") -> bool:
        """`for x`, and on the next line `in a b`: one line to the grammar."""
        return grammar.after in (b"for+", b"case+") and bool(
            _IN_NEXT.match(self.source, self.at, self.limit)
        )

    def _ends_word(self, at: int) -> bool:
        return (
            at >= self.limit
            or self.source[at] in b" \t\n|&;<>()"
            or (self.source.startswith(b"\\\n", at))
        )

    def _comment(self) -> None:
        end = self.source.find(b"\n", self.at, self.limit)
        self.at = self.limit if end < 0 else end

    def _skip(self, pattern: re.Pattern[bytes]) -> None:
        self.at = self._match_end(pattern)

    def _test(
        self,
        opening: bytes,
        tokens: list[Token],
        marks: list[tuple[int, bytes]],
        grammar: "_Grammar",
    ) -> bool:
        """All of `[[ … ]]` or `(( … ))` as one word, if it is one."""
        here = self.at
        if not self.source.startswith(opening, here):
            return False
        found = self._sum(here + 2) if opening == b"((" else self._brackets(here + 2)
        if found is None:
            self.at = here
            return False
        tokens.append(Word(here, self.at, found, is_test=True))
        marks.append((here, b"_" * (self.at - here)))
        grammar.word()
        return True

    def _for_sum(self, tokens: list[Token], marks: list[tuple[int, bytes]]) -> bool:
        """`for ((a; b; c))`, shown to the grammar as `for _ in _____`."""
        here = self.at
        if not self.source.startswith(b"((", here):
            return False
        parts = self._sum(here + 2)
        if parts is None:
            self.at = here
            return False
        tokens.append(Word(here, self.at, parts, is_test=True))
        marks.append((here, b"_ in " + b"_" * (self.at - here - 5)))
        return True

    def _brackets(self, at: int) -> list[Part]:
        self.at = at
        parts: list[Part] = []
        while self.at < self.limit:
            if self.source[self.at] in b" \t\n":
                self.at += 1
                if self.source.startswith(b"]]", self.at) and self._ends_word(self.at + 2):
                    self.at += 2
                    return parts
            elif not self._piece(parts, _IN_TEST):
                self.at += 1
        self._complain("[[ is never closed")
        return parts

    def _sum(self, at: int) -> list[Part] | None:
        """Arithmetic up to its `))`, or None: then it was two parentheses."""
        self._enter()
        trouble, self.at = self.trouble, at
        parts: list[Part] = []
        open_ones = 0
        while self.at < self.limit:
            byte = self.source[self.at]
            if byte == 0x28:
                open_ones += 1
                self.at += 1
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

    # Redirections

    def _substitutes(self, redirect: re.Match[bytes]) -> bool:
        """Whether it is `<(` or `>(`, which begin a word."""
        return redirect[0] in (b"<", b">") and self.source.startswith(b"(", redirect.end())

    def _redirection(self, redirect: re.Match[bytes]) -> Redirection:
        here = self.at
        operator = redirect[1]
        self.at = redirect.end()
        self.at = self._match_end(_BLANK)
        target = self.word()
        if target.end == target.start:
            self._complain(f"{operator.decode()} goes nowhere")
        descriptor = self.source[here : redirect.start(1)]
        return Redirection(here, self.at, descriptor, operator, target)

    def _heredocs(self, pending: list[Redirection]) -> None:
        for redirection in pending:
            delimiter, quoted = _delimiter(redirection.target)
            redirection.heredoc = self._heredoc(
                delimiter, quoted=quoted, strips=redirection.operator == b"<<-"
            )
        pending.clear()

    def _heredoc(self, delimiter: bytes, *, quoted: bool, strips: bool) -> Heredoc:
        start = at = self.at
        closed = False
        while at < self.limit:
            newline = self.source.find(b"\n", at, self.limit)
            end = self.limit if newline < 0 else newline
            line = self.source[at:end]
            if (line.lstrip(b"\t") if strips else line) == delimiter:
                closed = True
                break
            at = self.limit if newline < 0 else newline + 1
        stop = at
        parts: list[Part] = []
        if not quoted:
            inside = self._inner(start, stop)
            inside.pieces(parts, _IN_HEREDOC, b"\\$`\n")
            self.trouble = self.trouble or inside.trouble
        self.at = min(end, self.limit) if closed else self.limit
        return Heredoc(start, stop, quoted, closed, strips, parts)

    # Words

    def word(self) -> Word:
        here = self.at
        parts: list[Part] = []
        before = self.trouble
        self.trouble = None
        if ASSIGNS.match(self.source, here, self.limit):
            self._assigned(parts)
        while self.at < self.limit:
            byte = self.source[self.at]
            if byte in b"<>" and self.source.startswith(b"(", self.at + 1):
                self._process(parts)
            elif (
                byte in b" \t\n|&;<>)"
                or (byte == 0x28 and not self._extglob(parts))
                or (byte != 0x28 and not self._piece(parts, _PLAIN))
            ):
                break
        word = Word(here, self.at, parts, broken=self.trouble is not None)
        self.trouble = before or self.trouble
        return word

    def _assigned(self, parts: list[Part]) -> None:
        """`name[subscript]=`, and the array behind it if there is one."""
        assigns = ASSIGNS.match(self.source, self.at, self.limit)
        assert assigns is not None
        if not self.source.startswith(b"(", assigns.end()):
            if assigns[2]:  # a subscript may hold anything
                parts.append(Text(self.at, assigns.end(), assigns[0]))
                self.at = assigns.end()
            return
        parts.append(Text(self.at, assigns.end(), assigns[0]))
        begin = assigns.end()
        self.at = begin + 1
        self._enter()
        words: list[Word] = []
        while True:
            self.at = self._match_end(_BLANK)
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
                    self._complain("an array holds what no array can")
                    self.at += 1
                else:
                    words.append(word)
        parts.append(Array(begin, self.at, words))
        self._depth -= 1

    def _extglob(self, parts: list[Part]) -> bool:
        """`@(a|b)` and kin, which may stand in a word; read as unquoted text."""
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
        """One part of a word. False when there is none here."""
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
        """What may stand in double quotes and heredocs, up to a `"` that `plain` stops at."""
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
        if after != b"\n":  # a line that continues leaves nothing
            parts.append(Quoted(here, self.at, after or b"\\"))

    def _dollar(self, parts: list[Part], *, doubled: bool) -> None:
        here = self.at
        after = self.source[here + 1 : min(here + 3, self.limit)]
        if after[:1] == b"(":
            self._parenthesis(parts)
        elif after[:1] == b"{":
            self._braces(parts, doubled=doubled)
        elif after[:1] == b"'" and not doubled:
            self._ansi(parts)
        elif after[:1] == b'"' and not doubled:
            self.at += 1  # translated text: the dollar goes
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
        if escapes:  # what bash reads is not what is written, so it has positions of its own
            pattern = rb"\\([$`\\\"])" if doubled else rb"\\([$`\\])"
            text = re.sub(pattern, rb"\1", self.source[here + 1 : end])
            self._enter()
            frame = _Lexer(text, 0, len(text), self._count, self._depth).frame(closes=False)
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
        quotes_are_text = doubled and operator in (
            b":-",
            b"-",
            b":=",
            b"=",
            b":+",
            b"+",
            b":?",
            b"?",
        )
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
            parts.append(Parameter(here, self.at, b"", b"?", argument, b"", True))
            return
        parts.append(
            Parameter(
                here, self.at, shape[2], operator, argument, (shape[3] or b"")[1:-1], bool(shape[1])
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
        parts.append(Quoted(here, self.at, ansi(self.source[here + 2 : end])))

    # Bookkeeping

    def _inner(self, start: int, end: int) -> "_Lexer":
        return _Lexer(self.source, start, end, self._count, self._depth)

    def _match_end(self, pattern: re.Pattern[bytes]) -> int:
        found = pattern.match(self.source, self.at, self.limit)
        return found.end() if found else self.at

    def _complain(self, problem: str) -> None:
        self.trouble = self.trouble or problem

    def _tick(self) -> None:
        self._count[0] += 1
        if self._count[0] > MOST_TOKENS:
            raise Bomb(f"it has more than {MOST_TOKENS} words")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Bomb(f"it is nested more than {DEEPEST} deep")


class _Grammar:
    """Just enough of bash's grammar to tell a keyword from a word, and a `)` from a `)`."""

    def __init__(self) -> None:
        self.expects = True  # a command may begin here, so keywords are keywords
        self.closed = False  # a compound command has just ended: only redirections may follow
        self.after = b""  # the keyword whose next word is special: for, case, function
        self.depth = 0
        self._last = b""  # the operator, if it was the last thing
        self._open: list[bytes] = []  # ( and case; a case is b"case" or, inside an item, b"item"

    def takes(self, text: bytes) -> bool:
        """Whether this word is a keyword here."""
        if text == b"in":
            return self.after in (b"for+", b"case+")
        if self.after in (b"for", b"select", b"case", b"function"):
            return False
        if self.after == b"for+":
            return text in (b"do", b"{")
        if self._open and self._open[-1] == b"case":
            return text == b"esac"
        return self.expects

    def keyword(self, text: bytes) -> None:
        self._last = b""
        self.closed = False
        if text == b"in":
            if self.after == b"case+":
                self._open.append(b"case")
            self.after, self.expects = b"", False
            return
        self.after = b""
        if text in _OPENING:
            self.depth += 1
        if text in _CLOSING:
            self.depth -= 1
            self.closed = True
            if text == b"esac":
                while self._open and self._open.pop() not in (b"case", b"item"):
                    pass
        if text in (b"for", b"select", b"case", b"function"):
            self.after = b"for" if text == b"select" else text
            self.expects = False
        else:
            self.expects = True

    def word(self) -> None:
        self._last = b""
        self.closed = False
        self.expects = False
        if self.after in (b"for", b"case"):
            self.after += b"+"
        elif self.after == b"function":
            self.after, self.expects = b"", True

    def ends_command(self) -> bool:
        """Whether a newline here does what a semicolon does; elsewhere it is a blank."""
        if self._open and self._open[-1] == b"case":
            return False
        return self.closed or not (self.expects or self.after == b"function")

    def operator(self, text: bytes) -> None:
        empty = text == b")" and self._last == b"("
        self._last = text
        if text == b"(":
            if self._open and self._open[-1] == b"case":
                return  # the one that may stand before a pattern
            self._open.append(b"(")
            self.depth += 1
            self.expects, self.closed = True, False
        elif text == b")":
            if self._open and self._open[-1] == b"case":
                self._open[-1] = b"item"
                self.expects, self.closed = True, False
                return
            if self._open and self._open[-1] == b"(":
                self._open.pop()
            self.depth -= 1
            self.expects, self.closed = True, not empty  # empty: a function's name was before it
        elif text in (b";;", b";&", b";;&"):
            if self._open and self._open[-1] == b"item":
                self._open[-1] = b"case"
            self.expects, self.closed = True, False
        elif text == b"\n" and self.after in (b"for+", b"case+"):
            return
        else:
            self.expects, self.closed = True, False
            if self.after == b"for+":
                return
            self.after = b""

    def closes_frame(self) -> bool:
        """Whether a `)` here is not ours: neither of a subshell nor of a pattern."""
        return not self._open or self._open[-1] == b"item"


def _delimiter(word: Word) -> tuple[bytes, bool]:
    """A heredoc's delimiter, quotes removed, and whether it had any."""
    text, quoted = b"", False
    for part in word.parts:
        match part:
            case Text(text=piece):
                text += piece
            case Quoted(text=piece):
                text += piece
                quoted = True
            case Double(parts=inside):
                quoted = True
                text += b"".join(each.text for each in inside if isinstance(each, Quoted))
            case _:
                quoted = True
    return text, quoted


_ANSI: Final = re.compile(
    rb"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})"
    rb"|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_ANSI_LETTERS: Final = dict(zip(b"abeEfnrtv\\'\"?", b"\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def ansi(text: bytes) -> bytes:
    """What `$'text'` stands for. It ends at a NUL, as in bash."""

    def one(found: re.Match[bytes]) -> bytes:
        letter, octal, hexa, short, long, control = found.groups()
        if letter:
            return bytes([_ANSI_LETTERS[letter[0]]])
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        if hexa:
            return bytes([int(hexa, 16)])
        if control:
            return bytes([control[0] & 0x1F])
        number = int(short or long, 16)
        return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else found[0]

    return _ANSI.sub(one, text).split(b"\0")[0]
