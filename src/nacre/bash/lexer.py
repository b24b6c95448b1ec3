"""Lexer: splits a script into tokens by bash's own quoting rules, with exact byte positions.

A `Frame` is a text that bash reads as commands: the script itself, or the inside of a substitution.
For each text of commands, a `Frame` holds the redirections and the words, with each word split into
the parts that bash would expand. A frame also holds a *skeleton*: a simplified copy of its text,
with the same byte offsets, for the parser library tree-sitter. In the skeleton that tree-sitter
parses, every word is a run of underscores, and everything else except keywords and operators is
blank. If tree-sitter parsed the script itself instead of the skeleton, quotes, heredocs, newlines
and arithmetic would confuse it: its heredoc node, for example, would swallow the rest of the line.

Text that is not valid bash raises no exception: the lexer describes the problem in `Frame.trouble`
and continues as far as it can. A script that is too large or too deeply nested raises `TooComplex`.
"""

import re
from typing import Final

from nacre.bash.keyword_tracker import FOLLOWING, KEYWORDS, MAX_ERRORS, KeywordTracker
from nacre.bash.tokens import (
    Array,
    Double,
    Frame,
    Heredoc,
    Part,
    Quoted,
    Redirection,
    Text,
    Token,
    TooComplex,
    WordToken,
)
from nacre.bash.word_lexer import BLANK, MAX_DEPTH, PLAIN, WordLexer

# Pattern of a simple word, as most words are: no expansion, no assignment, no descriptor before a
# redirection.
_SIMPLE: Final = re.compile(
    rb"(?:-[A-Za-z0-9_./:@%+,=-]*|[A-Za-z0-9_./:@%+,][A-Za-z0-9_./:@%+,-]*)(?=[ \t\n|&;)]|\Z)"
)
_OPERATOR: Final = re.compile(rb"\|\||\|&|\||&&|;;&|;;|;&|&(?!>)|;|\n|[()]")
_REDIRECT: Final = re.compile(rb"(?:\d+|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<|>)")
_IN_HEREDOC: Final = re.compile(rb"[^\\$`]+")
_IN_TEST: Final = re.compile(rb"[^ \t\n'\"\\$`]+")
_IN_NEXT: Final = re.compile(rb"\s*in\s")
# Keywords that are left out of the skeleton for tree-sitter, each with a pattern for the text that
# belongs to it, such as the `-p` of `time -p`.
_PREFIXES: Final = {
    b"time": re.compile(rb"(?:(?:[ \t]|\\\n)+-p(?=\s))?"),
    b"coproc": re.compile(rb"(?:[ \t]+[A-Za-z_]\w*(?=[ \t]+(?:\{|\(|if |while |for )))?"),
    b"!": BLANK,
}


def tokenize(source: bytes) -> Frame:
    """Split a script into tokens. Raises TooComplex."""
    try:
        return _Lexer(source, 0, len(source), [0]).frame(closes=False)
    except RecursionError:  # the calling thread has already used most of its stack
        raise TooComplex("it is nested too deep for the stack of this thread") from None


class _FrameBuilder:
    """Builder for one `Frame`: collects the tokens of a text of commands, and the simplified copy
    of the text (the skeleton) that tree-sitter parses."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.grammar = KeywordTracker()
        self.tokens: list[Token] = []
        self.lines: list[int] = []
        self.pending: list[Redirection] = []  # heredocs whose bodies have not been read yet
        self.marks: list[tuple[int, bytes]] = []

    def mark(self, at: int, text: bytes) -> None:
        self.marks.append((at, text))
        if self.grammar.depth > MAX_DEPTH:
            raise TooComplex(f"it is nested more than {MAX_DEPTH} deep")

    def word(self, word: WordToken, text: bytes = b"") -> None:
        self.tokens.append(word)
        self.mark(word.start, b"_" * (word.end - word.start))
        if word.is_test:
            self.grammar.test()
        elif word.assigns:
            array = any(type(part) is Array for part in word.parts)
            self.grammar.word(text, assigns=True, array=array)
        else:
            self.grammar.word(text)

    def skeleton(self, end: int) -> bytes:
        skeleton = bytearray(b" ") * (end - self.start)
        for at, text in self.marks:
            skeleton[at - self.start : at - self.start + len(text)] = text
        return bytes(skeleton).rstrip()


class _Lexer(WordLexer):
    """Upper half of the lexer, which reads commands; the lower half, `WordLexer`, reads words."""

    def frame(self, *, closes: bool) -> Frame:
        self._enter()
        before, self.trouble = self.trouble, None
        draft = _FrameBuilder(self.at)
        while self._token(draft, closes=closes):
            self._tick()
        if draft.pending:
            for each in draft.pending:
                each.heredoc = Heredoc(self.at, self.at, True, False, False, [])
        if draft.grammar.wrong:
            self._complain("it is not valid bash")
            if draft.grammar.wrong > MAX_ERRORS and not closes:
                self.at = self.limit
        skeleton = draft.skeleton(self.at)
        frame = Frame(
            source=self.source,
            start=draft.start,
            end=self.at,
            tokens=draft.tokens,
            starts=[token.start for token in draft.tokens],
            skeleton=skeleton,
            lines=draft.lines,
            trouble=self.trouble,
        )
        self.trouble = before or self.trouble
        self._depth -= 1
        return frame

    def _token(self, draft: _FrameBuilder, *, closes: bool) -> bool:
        """Read the next token into `draft`; return False at the end of the script or substitution,
        or after too many syntax errors."""
        here = self.at = self._match_end(BLANK)
        if draft.grammar.wrong > MAX_ERRORS:
            return False  # too many syntax errors: the text is not a script
        if here >= self.limit:
            if closes:
                self._complain("a parenthesis is never closed")
            return False
        simple = _SIMPLE.match(self.source, here, self.limit)
        if simple and not (simple[0] in KEYWORDS and draft.grammar.takes(simple[0])):
            self.at = end = simple.end()
            draft.word(WordToken(here, end, [Text(here, end, simple[0])], plain=True), simple[0])
            return True
        if self.source[here] == 0x23:
            self._comment()
            return True
        operator = _OPERATOR.match(self.source, here, self.limit)
        if operator:
            if closes and operator[0] == b")" and draft.grammar.closes_frame():
                return False
            self._operator(draft, operator[0])
            return True
        redirect = _REDIRECT.match(self.source, here, self.limit)
        if redirect and not self._substitutes(redirect):
            self._redirection(draft, redirect)
        elif not self._keyword(draft):
            self._word(draft)
        return True

    # Lexer methods that read operators.

    def _operator(self, draft: _FrameBuilder, text: bytes) -> None:
        here, grammar = self.at, draft.grammar
        if text == b"(" and self._arithmetic(draft):
            return
        self.at += len(text)
        if text == b"\n":
            if grammar.ends_command() and not self._in_follows(grammar):
                draft.mark(here, b";")
                if not grammar.depth:
                    draft.lines.append(self.at)
        else:
            if text.startswith(b";") and draft.marks and draft.marks[-1] == (here - 1, b";"):
                # In the simplified text for tree-sitter (the skeleton), `;` replaces a newline,
                # except directly before another `;`, because the two together would be another
                # operator.
                draft.marks.pop()
            if text == b"(" and grammar.expects and self.source.startswith(b"(", self.at):
                # The simplified text for tree-sitter (the skeleton) omits the first of two adjacent
                # `(`, because tree-sitter would parse `((` as arithmetic.
                grammar.operator(b"((")
                return
            if text != b")" or grammar.innermost != b"((":
                draft.mark(here, text)
        grammar.operator(text)
        if text == b"\n":
            self._heredocs(draft)

    def _arithmetic(self, draft: _FrameBuilder) -> bool:
        """Read arithmetic `(( ... ))` as one word; in the skeleton for tree-sitter, `for (( ... ))`
        becomes `for _ in _____`. Return False if the text at the current position is not
        arithmetic."""
        here, grammar = self.at, draft.grammar
        if not self.source.startswith(b"((", here):
            return False
        if not (grammar.expects or grammar.after == b"for"):
            return False
        parts = self._sum(here + 2)
        if parts is None:  # this `((` is two separate parentheses, not arithmetic
            self.at = here
            return False
        looped = grammar.after == b"for"
        draft.word(WordToken(here, self.at, parts, is_test=True))
        if looped:
            draft.mark(here, b"_ in ")
        return True

    def _in_follows(self, grammar: KeywordTracker) -> bool:
        """Return whether the `in` of a `for` or `case` is on the next line; if so, the simplified
        text for tree-sitter (the skeleton) gets no separator before the `in`."""
        waits = grammar.after in (b"for+", b"case+")
        return waits and bool(_IN_NEXT.match(self.source, self.at, self.limit))

    # Lexer methods that read words and keywords.

    def _keyword(self, draft: _FrameBuilder) -> bool:
        here, grammar = self.at, draft.grammar
        plain = PLAIN.match(self.source, here, self.limit)
        text = plain[0] if plain and self._ends_word(plain.end()) else b""
        if text not in KEYWORDS or not grammar.takes(text):
            return False
        self.at = here + len(text)
        if text == b"[[":
            parts = self._brackets()
            draft.word(WordToken(here, self.at, parts, is_test=True))
            return True
        if text in _PREFIXES:
            self.at = self._match_end(_PREFIXES[text])
        else:
            self._mark_keyword(draft, here, text)
        grammar.keyword(text)
        return True

    def _mark_keyword(self, draft: _FrameBuilder, here: int, text: bytes) -> None:
        grammar = draft.grammar
        bare = grammar.closed and text in FOLLOWING
        if text == b"do" and grammar.after == b"for+":
            bare = draft.marks[-1][1] != b";"
        if bare and self.source[here - 1] in b" \t":
            draft.mark(here - 1, b";")  # unlike bash, tree-sitter needs a `;` before this keyword
        if text != b"in" or grammar.after == b"case+" or not self._no_words_follow():
            draft.mark(here, text)

    def _no_words_follow(self) -> bool:
        """Return whether the `in` of a `for` loop has no words after it; if so, the simplified text
        for tree-sitter (the skeleton) omits the `in`."""
        after = self.source[self._match_end(BLANK) : self.limit][:1]
        return after in (b";", b"\n", b"")

    def _word(self, draft: _FrameBuilder) -> None:
        here = self.at
        word = self.word()
        if word.end == word.start:  # no token can begin with this byte
            self._complain(f"{self.source[here : here + 1]!r} is not allowed here")
            self.at = word.end = here + 1
        draft.word(word)

    def _brackets(self) -> list[Part]:
        """Read the test between `[[` and `]]`, and return its parts."""
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

    # Lexer methods that read redirections and heredocs.

    def _substitutes(self, redirect: re.Match[bytes]) -> bool:
        """Return whether a `<` or `>` begins a process substitution, `<(` or `>(`, and not a
        redirection."""
        return redirect[0] in (b"<", b">") and self.source.startswith(b"(", redirect.end())

    def _redirection(self, draft: _FrameBuilder, redirect: re.Match[bytes]) -> None:
        here = self.at
        operator = redirect[1]
        self.at = redirect.end()
        self.at = self._match_end(BLANK)
        target = self.word()
        if target.end == target.start or any(type(part) is Array for part in target.parts):
            self._complain(f"{operator.decode()} goes nowhere")
        descriptor = self.source[here : redirect.start(1)]
        token = Redirection(here, self.at, descriptor, operator, target)
        draft.tokens.append(token)
        if operator in (b"<<", b"<<-"):
            draft.pending.append(token)
        width = self.at - here
        if draft.grammar.closed:  # the redirection applies to a whole compound command
            draft.mark(here, b">" + b"_" * (width - 1))
        else:
            draft.mark(here, b"_" * width)
            draft.grammar.redirection()

    def _heredocs(self, draft: _FrameBuilder) -> None:
        for redirection in draft.pending:
            delimiter, quoted = _delimiter(redirection.target)
            redirection.heredoc = self._heredoc(
                delimiter, quoted=quoted, strips=redirection.operator == b"<<-"
            )
        draft.pending.clear()

    def _heredoc(self, delimiter: bytes, *, quoted: bool, strips: bool) -> Heredoc:
        start = self.at
        tabs = rb"\t*" if strips else b""
        line = re.compile(rb"^" + tabs + re.escape(delimiter) + rb"$", re.MULTILINE)
        found = line.search(self.source, start, self.limit)
        stop = found.start() if found else self.limit
        parts: list[Part] = []
        if not quoted:
            inside = self._inner(start, stop)
            # Syntax errors in the body of a heredoc are ignored: bash reports them when the script
            # runs.
            inside.pieces(parts, _IN_HEREDOC, b"\\$`\n")
        self.at = found.end() if found else self.limit
        return Heredoc(start, stop, quoted, found is not None, strips, parts)


def _delimiter(word: WordToken) -> tuple[bytes, bool]:
    """Return the delimiter of a heredoc without its quotes, and whether it was quoted."""
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
