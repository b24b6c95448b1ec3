"""Search for the commands that another command would run in turn, such as the `rm` of `sudo rm x`.

Nested commands come from wrappers (`sudo`), from scripts in strings or on standard input, and from
functions of the script. The search for nested commands has a maximum depth. The module `walker`
visits the syntax tree of the script.
"""

import shlex
from collections.abc import Iterator
from typing import Final

import msgspec

from nacre.bash import lexer
from nacre.bash.builtin_effects import apply_builtin
from nacre.bash.commands import Assignment, ParsedCommand, Word, program_name
from nacre.bash.known_state import Body, KnownState, value_of
from nacre.bash.paths import resolve_path
from nacre.bash.possible_values import UNKNOWN
from nacre.bash.syntax_tree import Node
from nacre.bash.tokens import Frame, TooComplex
from nacre.bash.walk_context import Context, Origin, Surroundings
from nacre.bash.wrappers import (
    ChildShell,
    ScriptArgument,
    ScriptOnStdin,
    WrappedCommand,
    wrapped_command,
)

_MAX_DEPTH: Final = 8
_MAX_COMMANDS: Final = 4000
_IN_THIS_SHELL: Final = {b"command", b"builtin"}
_MAX_TEXT: Final = 64 * 1024  # maximum total bytes of all nested scripts that are analyzed
# Maximum words or lines of known stdin that the analysis passes to an xargs command.
_MAX_INPUT_COMMANDS: Final = 64


class NestedCommands(Context):
    def __init__(self, home: bytes | None, cwd: bytes | None) -> None:
        super().__init__(home, cwd)
        self.commands: list[ParsedCommand] = []
        self._seen: set[object] = set()
        self._room = _MAX_TEXT
        self._depth = 0

    def walk(self, frame: Frame, place: Surroundings) -> object:
        raise NotImplementedError

    def visit(self, node: Node, place: Surroundings) -> None:
        raise NotImplementedError

    def add(self, command: ParsedCommand) -> None:
        """Record a command of the script and the nested commands that it would run. Raises
        TooComplex."""
        if len(self.commands) >= _MAX_COMMANDS:
            raise TooComplex(f"it would run more than {_MAX_COMMANDS} commands")
        if command.via and command.exact:
            # A function that is called twice runs the same commands twice, but each of these
            # commands is recorded once.
            key = (command.start, command.end, command.words, command.cwd, command.redirects)
            if key in self._seen:
                return
            self._seen.add(key)
        self.commands.append(command)
        if command.words and self._depth < _MAX_DEPTH:
            self._depth += 1
            self._follow(command)
            self._depth -= 1

    def _may_call(self, command: ParsedCommand) -> bool:
        """Return whether this command can call a shell function: bash calls functions by name, not
        through `command` or `sudo`."""
        last = command.via[-1] if command.via else b"eval"
        return last == b"eval" or last in self.state.functions

    def script(self, text: bytes, origin: Origin) -> None:
        """Analyze a text as a separate script that starts in the currently known state of the
        shell."""
        outer, self.origin = self.origin, origin
        try:
            self.walk(lexer.tokenize(text), self.place)
        finally:
            self.origin = outer

    def _follow(self, command: ParsedCommand) -> None:
        first = command.words[0].text
        if first is not None and first in self.state.functions and self._may_call(command):
            self._call(command, first)
            return
        via = (*command.via, command.name or b"?")
        for each in wrapped_command(command):
            match each:
                case WrappedCommand():
                    self._follow_wrapped(command, each, via)
                case ScriptArgument(words=words, shell=shell):
                    self._follow_script(words, self._child_shell_state(shell, command), via)
                case ScriptOnStdin(shell=shell) if command.stdin is not None:
                    origin = self._input_origin(command, command.stdin)
                    self._analyze_in(
                        command.stdin, origin, self._child_shell_state(shell, command), via
                    )

    # Methods for commands whose arguments contain another command, such as `sudo`.

    def _follow_wrapped(
        self, command: ParsedCommand, found: WrappedCommand, via: tuple[bytes, ...]
    ) -> None:
        if found.replaces is not None:
            for words in self._replace_mark(command, found.words, found.replaces):
                self._follow_wrapped(command, WrappedCommand(words=words), via)
            return
        words, cwd = found.words, command.cwd
        if found.adds:
            words += self._words_of_input(command, words[-1])
        if found.directory is not None:
            from_there = cwd is not None or found.directory.startswith(b"/")
            cwd = resolve_path(cwd or b"/", found.directory) if from_there else None
        inner = msgspec.structs.replace(
            command,
            words=words,
            name=program_name(words),
            assignments=(*command.assignments, *map(_parse_assignment, found.given)),
            start=words[0].start,
            cwd=cwd,
            via=via,
        )
        self.add(inner)
        if via[-1] in _IN_THIS_SHELL:
            apply_builtin(self.state, words, command.stdin)

    def _words_of_input(self, command: ParsedCommand, last: Word) -> tuple[Word, ...]:
        """Return the words that xargs would append to its command from stdin; if the stdin is
        unknown, return one unknown word."""
        if command.stdin is None:
            return (Word(start=last.start, end=last.end),)
        texts = _split_xargs(command.stdin)
        expanded = [
            Word(start=last.start, end=last.end, text=each, prefix=each)
            for each in texts[:_MAX_INPUT_COMMANDS]
        ]
        if len(texts) > _MAX_INPUT_COMMANDS:
            expanded.append(Word(start=last.start, end=last.end))
        return tuple(expanded)

    def _replace_mark(
        self, command: ParsedCommand, words: tuple[Word, ...], mark: bytes
    ) -> Iterator[tuple[Word, ...]]:
        """Yield the command words of `xargs -I{}` once per line of stdin, with the placeholder
        replaced by the line."""
        if command.stdin is None:
            yield tuple(_fill_mark(word, mark, None) for word in words)
            return
        lines = command.stdin.replace(b"\0", b"\n").split(b"\n")
        for line in [each for each in lines if each][:_MAX_INPUT_COMMANDS]:
            yield tuple(_fill_mark(word, mark, line) for word in words)

    # Methods for commands whose arguments or stdin contain a script, such as `bash -c`.

    def _child_shell_state(
        self, shell: ChildShell | None, command: ParsedCommand
    ) -> KnownState | None:
        """Return the known state in which the child shell of a nested script starts; return None
        if the current shell runs the nested script, as with `eval`."""
        if shell is None:
            return None
        state = self.state.for_child_shell(shell.positional, command.assignments)
        if shell.zero is not None:
            state.assign(b"0", value_of(shell.zero))
        return state

    def _follow_script(
        self, words: tuple[Word, ...], state: KnownState | None, via: tuple[bytes, ...]
    ) -> None:
        if not words:
            return
        texts = [word.texts for word in words]
        if not all(texts):
            if state is None:
                # An `eval` of unknown text can change anything in the shell.
                self.state.forget_everything()
        elif len(words) > 1:
            origin = Origin(base=None, span=(words[0].start, words[-1].end))
            self._analyze_in(b" ".join(each[0] for each in texts), origin, state, via)
        else:
            for text in texts[0]:
                self._analyze_in(text, self._word_origin(words[0], text), state, via)

    def _word_origin(self, word: Word, text: bytes) -> Origin:
        """Return, as an `Origin`, where a nested script that is one word, such as the argument of
        `bash -c`, begins in the outer script. The commands of a nested script get exact positions
        in the outer script if the outer script contains the nested script verbatim."""
        base = self.origin.base
        if base is not None and not self.origin.quotes:
            written = self.frame.source[word.start - base : word.end - base]
            if written == text:
                return Origin(base=word.start)
            for quote in (b"'", b'"'):
                if written == quote + text + quote:
                    return Origin(base=word.start + 1, quotes=quote)
        return Origin(base=None, span=(word.start, word.end))

    def _input_origin(self, command: ParsedCommand, text: bytes) -> Origin:
        """Return, as an `Origin`, where a nested script that a shell reads from stdin begins in the
        outer script. The commands of a nested script on stdin get exact positions in the outer
        script if a heredoc or `<<<` contains the nested script verbatim."""
        for redirect in command.redirects:
            if redirect.body == text and redirect.body_at is not None and not command.quotes:
                return Origin(base=redirect.body_at)
            if redirect.operator == b"<<<" and redirect.body == text:
                return self._word_origin(redirect.target, text[:-1])
        return Origin(base=None, span=(command.start, command.end))

    def _analyze_in(
        self, text: bytes, origin: Origin, state: KnownState | None, via: tuple[bytes, ...]
    ) -> None:
        """Analyze a nested script that runs in a child shell with the known state `state`, or in
        the current shell if `state` is None."""
        self._room -= len(text)
        if self._room < 0:
            return
        saved, place = self.state, self.place
        later = via[-1] == b"trap"
        if state is not None or later:
            self.state = (state or saved).copy()
        # A variable that is empty when the script sets a trap may have a value when the trap runs.
        if later:
            self.state.mark_not_empty(saved.variables)
        self.place = msgspec.structs.replace(place, via=via, stdin=None)
        try:
            self.script(text, origin)
        finally:
            self.place = place
            if state is not None or later:
                self.state = saved

    # Methods for calls of shell functions that the script defines.

    def _call(self, command: ParsedCommand, name: bytes) -> None:
        """Analyze the body of a shell function of the script, with the arguments of the command
        that calls it."""
        bodies = self.state.functions[name]
        if name in command.via:
            return
        if any(body.frame.source is not self.frame.source for body in bodies):
            # If a script calls a function that was defined in another text, such as the argument of
            # an `eval`, the function is not analyzed, and the shell's variables and directory are
            # unknown after the call.
            self.state.forget_everything()
            return
        before, ends = self.state, []
        for body in bodies:
            self.state = before.copy()
            self._enter(body, command, name)
            ends.append(self.state)
        for end in ends[1:]:
            ends[0] = ends[0].merge(end)
        self.state = ends[0] if len(bodies) == 1 else ends[0].merge(before)

    def _enter(self, body: Body, command: ParsedCommand, name: bytes) -> None:
        outer, place, state = self.frame, self.place, self.state
        variables, outer_locals = dict(state.variables), state.locals
        positional = state.arrays.get(b"@")
        state.locals = set()
        state.set_positional(command.arguments)
        self.frame = body.frame
        inner = msgspec.structs.replace(
            place, via=(*command.via, name), function=True, stdin=command.stdin
        )
        try:
            self.visit(body.node, inner)
        finally:
            self.frame, self.place = outer, place
        self.state.restore_positional(positional)
        for each in self.state.locals:
            self.state.assign(each, variables.get(each, UNKNOWN))
        self.state.locals = outer_locals


def _split_xargs(text: bytes) -> list[bytes]:
    """Return the words into which xargs splits its standard input."""
    if b"\0" in text:
        return [each for each in text.split(b"\0") if each]
    try:
        return [each.encode("latin-1") for each in shlex.split(text.decode("latin-1"))]
    except ValueError:  # the standard input of xargs has unclosed quotes
        return text.split()


def _parse_assignment(word: Word) -> Assignment:
    """Parse a `NAME=value` argument of a wrapper such as `env`."""
    name, _, value = word.prefix.partition(b"=")
    known = None if word.text is None else value
    inner = Word(start=word.start, end=word.end, text=known, prefix=value)
    return Assignment(name=name, value=inner, start=word.start, end=word.end)


def _fill_mark(word: Word, mark: bytes, line: bytes | None) -> Word:
    if word.text is None or mark not in word.text:
        return word
    if line is None:
        return Word(start=word.start, end=word.end)
    text = word.text.replace(mark, line)
    return Word(start=word.start, end=word.end, text=text, prefix=text)
