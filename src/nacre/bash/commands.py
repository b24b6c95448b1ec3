"""Result types of the script analysis: the commands that a script would run, and what is known
about each command.

All positions of words and commands are byte offsets in the analyzed script. A command in a string
(`bash -c '...'`) has the position of its own text if the script contains that text verbatim;
otherwise it has the position of the word that holds the string. `ParsedCommand.exact` is True if
the position of a command is that of its own text, and False if it is the position of the word that
holds the command in a string.
"""

import os

from msgspec import Struct


class Word(Struct, frozen=True, kw_only=True, gc=False):
    """Word of a command as the command receives it: quotes are removed and known parameters are
    substituted."""

    start: int
    end: int
    text: bytes | None = None  # text of the word; None: not known before the script runs
    # possible texts of a word whose text is unknown; the list may be incomplete
    maybe: tuple[bytes, ...] = ()
    prefix: bytes = b""  # known beginning of the word's text
    glob: bool = False  # whether the text is a glob pattern that bash would expand
    # for a word `<( ... )`: predicted content of the file that the word names
    content: bytes | None = None
    bare: bool = False  # whether no part of the word is quoted

    @property
    def texts(self) -> tuple[bytes, ...]:
        """Tuple with the word's text if the text is known, otherwise with the word's possible
        texts."""
        return self.maybe if self.text is None else (self.text,)


class Assignment(Struct, frozen=True, kw_only=True, gc=False):
    name: bytes
    value: Word
    # elements of an assigned array `( ... )`; None: not an array
    elements: tuple[Word, ...] | None = None
    start: int
    end: int


class Redirect(Struct, frozen=True, kw_only=True, gc=False):
    operator: bytes  # redirection operator; the operator `<<-` is stored as `<<`
    # redirected descriptor; None: a variable holds its number, as in `{fd}>`
    descriptor: int | None
    # file or descriptor after the redirection operator; for a heredoc, a word with unknown text
    target: Word
    body: bytes | None = None  # text that the redirection supplies as input; None: unknown
    # offset at which the script contains `body`, the redirection's input text; None: the script
    # does not contain `body` verbatim
    body_at: int | None = None
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
    """One command that a script would run, with everything that the analysis knows about it."""

    words: tuple[Word, ...]
    name: bytes | None = None  # name of the command's program without its directory; None: unknown
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    start: int
    end: int
    cwd: bytes | None = None  # working directory of the command; None: unknown
    stdin: bytes | None = None  # text that the command would read from stdin; None: unknown
    # whether a pipe or a redirection of an enclosing compound command supplies the command's stdin
    fed: bool = False
    # whether the command's stdout goes to a pipe or to a redirection of an enclosing compound
    # command
    feeds: bool = False
    # the previous command of the same pipeline, if that pipeline stage is a simple command
    feeder: "ParsedCommand | None" = None
    background: bool = False  # whether the command runs in the background
    substitution: bool = False  # whether the command is inside a command or process substitution
    function: bool = False  # whether the command is in the body of a shell function
    loop: bool = False  # whether the command is in the condition or body of a loop
    # whether the script tests the command's exit status, by `if`, `!`, or a following `&&` or `||`
    tested: bool = False
    # names of the wrappers, shells and functions through which the script runs the command,
    # outermost first, such as `sudo`, `bash`
    via: tuple[bytes, ...] = ()
    # whether `start` and `end` are the position of the command's own text; False: they are the
    # position of the word that holds the command in a string
    exact: bool = True
    # quote character of the string that contains the command, as in `bash -c "..."`
    quotes: bytes = b""

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[1:]


def known_prefix(word: Word) -> bytes:
    """Return the text of a word, or the known beginning of the text if the rest is unknown."""
    return word.prefix if word.text is None else word.text


def program_name(words: tuple[Word, ...]) -> bytes | None:
    """Return the base name of the program that a command with these words runs; None if it is
    unknown."""
    text = words[0].text if words else None
    return text if text is None or b"/" not in text else os.path.basename(text) or text


class Function(Struct, frozen=True, kw_only=True, gc=False):
    """Shell function that the script defines, with the commands of its body."""

    name: bytes
    start: int
    end: int
    body: tuple[ParsedCommand, ...]
    # whether the function's body has a condition, a loop or a `return`, so that a recursive call
    # may end
    decides: bool


class Unreadable(Struct, frozen=True, kw_only=True, gc=False):
    """Reason why a part of the script could not be parsed, and the position of that part, if
    known."""

    why: str
    at: int | None = None


class Analysis(Struct, frozen=True, kw_only=True, gc=False):
    """Result of the static analysis of one script."""

    text: bytes
    commands: tuple[ParsedCommand, ...]
    functions: tuple[Function, ...] = ()
    unreadable: Unreadable | None = None
