"""Subset of bash's grammar that tells keywords from ordinary words, and tells whether a `)` closes
a subshell, a `case` pattern or a substitution."""

from typing import Final

# Words that are keywords at a position where a command may begin.
KEYWORDS: Final = {
    *(b"if", b"then", b"else", b"elif", b"fi", b"while", b"until", b"do", b"done"),
    *(b"for", b"select", b"case", b"esac", b"{", b"}", b"!", b"function", b"time", b"coproc"),
    *(b"[[", b"in"),
}
_OPENING: Final = {b"if", b"while", b"until", b"for", b"select", b"case", b"{"}
_BODIES: Final = {b"if", b"then", b"else", b"elif", b"while", b"until", b"do", b"{"}
_CLOSING: Final = {b"fi", b"done", b"esac", b"}"}
_DECLARE: Final = {b"declare", b"typeset", b"local", b"export", b"readonly", b"eval", b"alias"}
# Maximum number of syntax errors in one frame (text of commands); a text with more errors is not a
# script.
MAX_ERRORS: Final = 40
# Keywords that may follow the end of a compound command without a separator.
FOLLOWING: Final = {*_CLOSING, b"then", b"do", b"else", b"elif"}


class KeywordTracker:
    """Parser state that is updated with each token of a script and tells what the next token can
    be."""

    def __init__(self) -> None:
        # whether a command may begin at this position of the script, so that keywords are
        # recognized
        self.expects = True
        # whether a compound command has just ended, so that only redirections, operators and the
        # keywords in `FOLLOWING` may come next
        self.closed = False
        # `for`, `case` or `function`: this keyword was read, but not yet the word after it; `for+`
        # or `case+`: that word was read, too; otherwise empty
        self.after = b""
        self.depth = 0
        self.wrong = 0  # number of tokens at positions where bash's grammar does not allow them
        self._hollow = False  # whether the body of a compound command has begun and is still empty
        self._begun = False  # whether the name of the current command has been read
        self._declares = False  # whether the current command may assign arrays, as `declare` may
        # The last token if it was an operator, otherwise empty. `_last` is `f(` if the last token
        # was a `(` after a word, as in `name()`. `_last` is `function` if the last token was the
        # name in `function name`.
        self._last = b""
        # Stack of open constructs: `(` for a parenthesis, `case` for the patterns of a `case`
        # command, `item` for the commands after such a pattern. `_open` contains `((` for the first
        # of two adjacent `(`, which `lexer` hides from tree-sitter, because tree-sitter would parse
        # `((` as arithmetic.
        self._open: list[bytes] = []

    def takes(self, text: bytes) -> bool:
        """Return whether this word is a keyword at the current position of the script."""
        if text == b"in":
            return self.after in (b"for+", b"case+")
        if self.after in (b"for", b"select", b"case", b"function"):
            return False
        if self.after == b"for+":
            return text in (b"do", b"{")
        if self._in_patterns():
            return text == b"esac"
        return self.expects

    def keyword(self, text: bytes) -> None:
        self._object(self.closed and text not in FOLLOWING)
        self._object(self._hollow and text in FOLLOWING)
        self._next()
        self._hollow = text in _BODIES
        if text == b"in":
            if self.after == b"case+":
                self._open.append(b"case")
            self.after, self.expects = b"", False
            return
        self.after = b""
        if text in _OPENING:
            self.depth += 1
        if text == b"esac":
            while self._open and self._open.pop() not in (b"case", b"item"):
                pass
        if text in (b"for", b"select", b"case", b"function"):
            self.after = b"for" if text == b"select" else text
            self.expects = False
            return
        self._expect()
        if text in _CLOSING:
            self._object(self.depth <= 0)
            self.depth = max(self.depth - 1, 0)
            self.closed = True

    def test(self) -> None:
        """Update the parser state for a test `[[ ... ]]` or `(( ... ))`, which is a complete
        command."""
        self.word(b"")
        self.expects = self.closed = True

    def word(self, text: bytes, *, assigns: bool = False, array: bool = False) -> None:
        self._object(self.closed or (self.expects and text == b"in"))
        self._object(array and self._begun and not self._declares)
        self._next()
        if not (self._begun or assigns):
            self._begun, self._declares = True, text in _DECLARE
        self.expects = False
        if self.after in (b"for", b"case"):
            self.after += b"+"
        elif self.after == b"function":
            self.after, self._last = b"", b"function"
            self._expect()

    def redirection(self) -> None:
        """Update the parser state for a redirection of a simple command; a redirection may come
        before the command's name."""
        self._next()
        self.expects = False

    def ends_command(self) -> bool:
        """Return whether a newline at the current position acts as a semicolon; otherwise it acts
        as a blank."""
        if self._in_patterns():
            return False
        return self.closed or not (self.expects or self.after == b"function")

    def operator(self, text: bytes) -> None:
        last = self._last
        self._object(last == b"f(" and text != b")")
        self._last = text
        if text in (b"(", b"(("):
            self._hollow = False
            if self._in_patterns():
                return  # optional `(` before a pattern of a `case` command
            self._last = b"(" if self.expects and last != b"function" else b"f("
            self._open.append(text)
            self.depth += 1
            self._expect()
        elif text == b")":
            if self._in_patterns():
                self._open[-1] = b"item"
                self._expect()
                return
            if self.innermost in (b"(", b"(("):
                self._open.pop()
                self.depth -= 1
            else:
                self._object(True)
            self._expect()
            self.closed = last != b"f("  # after `name()`, the body of the function follows
        elif text in (b";;", b";&", b";;&"):
            self._object(self.innermost != b"item")
            if self._open:
                self._open[-1] = b"case"
            self._expect()
        elif text == b"\n" and self.after in (b"for+", b"case+"):
            return
        elif text != b"\n" and self.expects and not self.closed:
            self._object(True)  # an operator such as `&&` has no command before it
        else:
            self._expect()
            if self.after != b"for+":
                self.after = b""

    @property
    def innermost(self) -> bytes:
        return self._open[-1] if self._open else b""

    def closes_frame(self) -> bool:
        """Return whether a `)` at the current position closes the enclosing substitution, and not a
        subshell or a `case` pattern."""
        return self.innermost in (b"", b"item")

    def _in_patterns(self) -> bool:
        return self.innermost == b"case"

    def _expect(self) -> None:
        self.expects, self.closed = True, False
        self._begun = self._declares = False

    def _next(self) -> None:
        self._object(self._last == b"f(")
        self._last = b""
        self.closed = self._hollow = False

    def _object(self, wrong: bool) -> None:
        self.wrong += wrong
