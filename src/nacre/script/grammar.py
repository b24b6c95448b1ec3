"""Just enough of bash's grammar to tell a keyword from a word, and a `)` from a `)`."""

from typing import Final

# Words that mean something where a command may begin.
KEYWORDS: Final = {
    *(b"if", b"then", b"else", b"elif", b"fi", b"while", b"until", b"do", b"done"),
    *(b"for", b"select", b"case", b"esac", b"{", b"}", b"!", b"function", b"time", b"coproc"),
    *(b"[[", b"in"),
}
_OPENING: Final = {b"if", b"while", b"until", b"for", b"select", b"case", b"{"}
_CLOSING: Final = {b"fi", b"done", b"esac", b"}"}
# What may follow the end of a compound command without a separator.
FOLLOWING: Final = {*_CLOSING, b"then", b"do", b"else", b"elif"}


class Grammar:
    """Told of each token in turn, it knows what the next one can be."""

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
