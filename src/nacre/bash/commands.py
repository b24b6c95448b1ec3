"""What reading a script gives: the commands that it would run, each with all that is known of it.

Positions are bytes of the text that was read. A command that was found in a string (`bash -c '…'`)
has the positions of its own text when that stands in the script as it is, else those of the word
that holds it; `Command.exact` tells.
"""

import os

from msgspec import Struct


class Word(Struct, frozen=True, kw_only=True, gc=False):
    """A word as the command gets it: quotes resolved, parameters put in where they are known."""

    start: int
    end: int
    text: bytes | None = None  # None: cannot be known before running
    maybe: tuple[bytes, ...] = ()  # what it may be then, among others
    prefix: bytes = b""  # and how it begins
    glob: bool = False  # the text is a pattern that bash would expand
    content: bytes | None = None  # of <( … ): what is in the file that it names
    bare: bool = False  # nothing in it is quoted

    @property
    def texts(self) -> tuple[bytes, ...]:
        """Everything that it is known to be or maybe to be."""
        return self.maybe if self.text is None else (self.text,)


class Assignment(Struct, frozen=True, kw_only=True, gc=False):
    name: bytes
    value: Word
    elements: tuple[Word, ...] | None = None  # of an array
    start: int
    end: int


class Redirect(Struct, frozen=True, kw_only=True, gc=False):
    operator: bytes  # "<<" also for "<<-"
    descriptor: int | None  # None: named by a variable
    target: Word  # of a heredoc its delimiter
    body: bytes | None = None  # what it feeds, when that is known
    body_at: int | None = None  # where that stands in the text, when it stands there as it is
    start: int
    end: int

    @property
    def is_input(self) -> bool:
        """Whether it is where standard input comes from."""
        return self.descriptor == 0 and self.operator in (b"<", b"<<", b"<<<", b"<>")

    @property
    def is_write(self) -> bool:
        """Whether it opens a file for writing."""
        if self.operator == b">&":
            text = self.target.text
            return text is not None and not text.isdigit() and text.rstrip(b"-") != b""
        return self.operator in (b">", b">>", b">|", b"&>", b"&>>", b"<>")

    @property
    def is_stdout(self) -> bool:
        """Whether it is where standard output goes."""
        return self.is_write and (self.descriptor == 1 or self.operator in (b"&>", b"&>>"))


class ParsedCommand(Struct, frozen=True, kw_only=True, gc=False):
    """A command that a script would run."""

    words: tuple[Word, ...]
    name: bytes | None = None  # the program, without its directory
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    start: int
    end: int
    cwd: bytes | None = None  # where it would run, when that is known
    stdin: bytes | None = None  # what it would read, when that is known
    fed: bool = False  # by a pipe
    feeds: bool = False  # a pipe
    feeder: "ParsedCommand | None" = None  # the command before the pipe, if it is a single one
    background: bool = False
    substitution: bool = False  # inside of one
    function: bool = False  # in the body of one
    loop: bool = False  # in the body of one
    via: tuple[bytes, ...] = ()  # what it was looked through: sudo, bash, the name of a function
    exact: bool = True  # the positions are those of its own text
    quotes: bytes = b""  # the quotes that its own text stands in: of bash -c "…"

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[1:]


def known_prefix(word: Word) -> bytes:
    """The word, or as much of its beginning as is known."""
    return word.prefix if word.text is None else word.text


def program_name(words: tuple[Word, ...]) -> bytes | None:
    """The name of what these words run, if it is known."""
    text = words[0].text if words else None
    return text if text is None or b"/" not in text else os.path.basename(text) or text


class Function(Struct, frozen=True, kw_only=True, gc=False):
    """A function that the script defines, and what is in its body."""

    name: bytes
    start: int
    end: int
    body: tuple[ParsedCommand, ...]
    decides: bool  # something in the body may end it: a condition, a loop, a return


class Unreadable(Struct, frozen=True, kw_only=True, gc=False):
    """Why some of the text could not be read, and from where on, if that is known."""

    why: str
    at: int | None = None


class Analysis(Struct, frozen=True, kw_only=True, gc=False):
    """All that can be said about a script without running it."""

    text: bytes
    commands: tuple[ParsedCommand, ...]
    functions: tuple[Function, ...] = ()
    unreadable: Unreadable | None = None
