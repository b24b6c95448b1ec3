"""Result types of the script analysis: the commands that a script would run, and what is known
about each command.

Positions are byte offsets in the analyzed text. A command in a string (`bash -c '...'`) keeps the
positions of its own text when the script contains that text verbatim. Otherwise the command has the
positions of the word that holds the string. `ParsedCommand.exact` tells these two cases apart.
"""

import os

from msgspec import Struct


class Word(Struct, frozen=True, kw_only=True, gc=False):
    """Word as the command receives it: quotes are removed and known parameters are substituted."""

    start: int
    end: int
    text: bytes | None = None  # None: the text is unknown before the script runs
    maybe: tuple[bytes, ...] = ()  # possible texts when `text` is None; the list may be incomplete
    prefix: bytes = b""  # known beginning of the text
    glob: bool = False  # the text is a pattern that bash would expand
    content: bytes | None = None  # for `<( ... )`: content of the file that the word names
    bare: bool = False  # no part of the word is quoted

    @property
    def texts(self) -> tuple[bytes, ...]:
        """Texts that the word has or may have."""
        return self.maybe if self.text is None else (self.text,)


class Assignment(Struct, frozen=True, kw_only=True, gc=False):
    name: bytes
    value: Word
    elements: tuple[Word, ...] | None = None  # elements of an array; None: not an array
    start: int
    end: int


class Redirect(Struct, frozen=True, kw_only=True, gc=False):
    operator: bytes  # `<<` also stands for `<<-`
    descriptor: int | None  # None: a variable names the descriptor, as in `{fd}>`
    target: Word  # file or descriptor; an unknown word for a heredoc
    body: bytes | None = None  # text that the redirection feeds; None: unknown
    body_at: int | None = None  # offset of `body` in the script; None: not verbatim
    start: int
    end: int

    @property
    def is_input(self) -> bool:
        """Return whether the redirection supplies standard input."""
        return self.descriptor == 0 and self.operator in (b"<", b"<<", b"<<<", b"<>")

    @property
    def is_write(self) -> bool:
        """Return whether the redirection opens a file for writing."""
        if self.operator == b">&":
            text = self.target.text
            return text is not None and not text.isdigit() and text.rstrip(b"-") != b""
        return self.operator in (b">", b">>", b">|", b"&>", b"&>>", b"<>")

    @property
    def is_stdout(self) -> bool:
        """Return whether the redirection sends standard output to a file."""
        return self.is_write and (self.descriptor == 1 or self.operator in (b"&>", b"&>>"))


class ParsedCommand(Struct, frozen=True, kw_only=True, gc=False):
    """Command that a script would run."""

    words: tuple[Word, ...]
    name: bytes | None = None  # name of the program without its directory; None: unknown
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    start: int
    end: int
    cwd: bytes | None = None  # working directory of the command; None: unknown
    stdin: bytes | None = None  # text that the command would read; None: unknown
    fed: bool = False  # stdin comes from a pipe, or a compound command redirects it
    feeds: bool = False  # stdout goes to a pipe, or a compound command redirects it
    # the command before the pipe, if that pipeline stage is a simple command
    feeder: "ParsedCommand | None" = None
    background: bool = False  # the command runs in the background
    substitution: bool = False  # the command is inside a command or process substitution
    function: bool = False  # the command is in the body of a function
    loop: bool = False  # the command is in the condition or body of a loop
    # wrappers, shells and functions that lead to the command, outermost first: `sudo`, `bash`
    via: tuple[bytes, ...] = ()
    exact: bool = True  # True if the positions are those of the command's own text
    # quote character around the command's own text, as in `bash -c "..."`
    quotes: bytes = b""

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[1:]


def known_prefix(word: Word) -> bytes:
    """Return the text of a word, or its known beginning."""
    return word.prefix if word.text is None else word.text


def program_name(words: tuple[Word, ...]) -> bytes | None:
    """Return the base name of the program that these words run; None if it is unknown."""
    text = words[0].text if words else None
    return text if text is None or b"/" not in text else os.path.basename(text) or text


class Function(Struct, frozen=True, kw_only=True, gc=False):
    """Shell function that the script defines, with the commands of its body."""

    name: bytes
    start: int
    end: int
    body: tuple[ParsedCommand, ...]
    # the body has a condition, a loop or a `return` that may end a recursion
    decides: bool


class Unreadable(Struct, frozen=True, kw_only=True, gc=False):
    """Reason why a part of the script could not be parsed, and its position, if known."""

    why: str
    at: int | None = None


class Analysis(Struct, frozen=True, kw_only=True, gc=False):
    """Result of the static analysis of one script."""

    text: bytes
    commands: tuple[ParsedCommand, ...]
    functions: tuple[Function, ...] = ()
    unreadable: Unreadable | None = None
