"""The door: a script in, a `Reading` out.

A walk over the structure in the order in which bash would run it, keeping what is known on the way:
the values of variables, the directory, the functions. What may or may not have happened (a branch,
a loop) leaves what it changed open. Commands that run commands are followed, to a bounded depth.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence as Items
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from nacre.script import lex, skeleton, words
from nacre.script.commands import (
    Assignment,
    Command,
    Function,
    Reading,
    Redirect,
    Unreadable,
    Word,
)
from nacre.script.lex import ASSIGNS, Bomb, Frame, Substitution
from nacre.script.paths import at
from nacre.script.said import said
from nacre.script.skeleton import (
    Case,
    Chain,
    Group,
    If,
    Loop,
    Node,
    Pipeline,
    Redirected,
    Sequence,
    Simple,
)
from nacre.script.words import UNKNOWN, Value, either, known
from nacre.script.wrappers import Reads, ReadsInput, Runs, inside

LONGEST: Final = 128 * 1024
_DEEPEST: Final = 8  # of scripts in strings in scripts
_MOST_COMMANDS: Final = 4000
_TRIES: Final = 64
_DECLARES: Final = {b"export", b"declare", b"local", b"readonly", b"typeset"}
_LEAVES: Final = {b"exit", b"return", b"break", b"continue"}
_DECIDES: Final = _LEAVES | {b"[", b"test", b"wait", b"sleep", b"read"}


@lru_cache(maxsize=16)
def read(text: bytes, *, home: bytes | None = None, cwd: bytes | None = None) -> Reading:
    """Everything that this script would run. Never raises."""
    if len(text) > LONGEST:
        return _unread(text, f"it is longer than {LONGEST // 1024} KiB")
    walker = _Walker(home, cwd)
    try:
        walker.script(text, _Origin(base=0))
    except Bomb as bomb:
        return _unread(text, str(bomb))
    except RecursionError:
        return _unread(text, "it is nested too deep")
    return Reading(
        text=text,
        commands=tuple(walker.commands),
        functions=tuple(walker.functions),
        unreadable=walker.unreadable,
    )


def _unread(text: bytes, why: str) -> Reading:
    return Reading(text=text, commands=(), unreadable=Unreadable(why=f"not read: {why}"))


class _Origin(Struct, frozen=True, kw_only=True):
    """Where the text that is being read stands in the script that was given."""

    base: int | None  # its first byte, when it stands there as it is
    span: tuple[int, int] = (0, 0)  # else: the word that holds it
    quotes: bytes = b""


class _Place(Struct, frozen=True, kw_only=True):
    """What surrounds a command."""

    fed: bool = False
    feeds: bool = False
    background: bool = False
    substitution: bool = False
    function: bool = False
    loop: bool = False
    stdin: bytes | None = None
    feeder: Command | None = None
    via: tuple[bytes, ...] = ()


class _State:
    """What is known at a point of the walk."""

    def __init__(self) -> None:
        self.variables: dict[bytes, Value] = {}
        self.arrays: dict[bytes, tuple[Value, ...]] = {}
        self.functions: dict[bytes, tuple[Node, Frame]] = {}
        self.cwd: bytes | None = None

    def copy(self) -> "_State":
        other = _State()
        other.variables = dict(self.variables)
        other.arrays = dict(self.arrays)
        other.functions = dict(self.functions)
        other.cwd = self.cwd
        return other

    def or_else(self, other: "_State") -> "_State":
        """What is known when it is open which of the two came to be."""
        made = _State()
        for name in self.variables.keys() | other.variables.keys():
            mine = self.variables.get(name, UNKNOWN)
            made.variables[name] = either(mine, other.variables.get(name, UNKNOWN))
        made.arrays = {
            name: values for name, values in self.arrays.items() if other.arrays.get(name) == values
        }
        made.functions = other.functions | self.functions
        made.cwd = self.cwd if self.cwd == other.cwd else None
        return made


class _Walker:
    """Also the `Scope` in which words are expanded."""

    def __init__(self, home: bytes | None, cwd: bytes | None) -> None:
        self.commands: list[Command] = []
        self.functions: list[Function] = []
        self.unreadable: Unreadable | None = None
        self._home = home
        self._state = _State()
        self._state.cwd = cwd
        if home is not None:
            self._state.variables[b"HOME"] = known(home)
        self._origin = _Origin(base=0)
        self._frame: Frame
        self._starts: list[int]
        self._place = _Place()
        self._depth = 0
        self._seen: set[object] = set()

    # Scope

    def variable(self, name: bytes) -> Value:
        if name == b"PWD":
            cwd = self._state.cwd
            return UNKNOWN if cwd is None else known(cwd)
        return self._state.variables.get(name, UNKNOWN)

    def elements(self, name: bytes) -> tuple[Value, ...] | None:
        return self._state.arrays.get(b"@" if name == b"*" else name)

    def assign(self, name: bytes, value: Value) -> None:
        self._state.variables[name] = value
        self._state.arrays.pop(name, None)

    def output(self, substitution: Substitution) -> Value:
        place = _Place(substitution=True, via=self._place.via, function=self._place.function)
        before, saved = len(self.commands), self._state
        self._state = saved.copy()
        structure = self._inner(substitution, place)
        self._state = saved
        made = self.commands[before:]
        only = (
            len(made) == 1 and len(structure.items) == 1 and isinstance(structure.items[0], Simple)
        )
        text = said(made[0]) if only else None
        return UNKNOWN if text is None else known(text.rstrip(b"\n"))

    # Scripts and frames

    def script(self, text: bytes, origin: _Origin) -> None:
        """Read text as a script of its own, in the state that is."""
        outer = self._origin
        self._origin = origin
        try:
            frame = lex.lex(text)
            self._walk(frame, self._place)
        finally:
            self._origin = outer

    def _inner(self, substitution: Substitution, place: _Place) -> Sequence:
        frame, outer = substitution.frame, self._frame
        if frame.source is outer.source:
            return self._walk(frame, place)
        # Backticks with escapes: what bash reads stands nowhere as it is.
        origin = self._origin
        self._origin = _Origin(base=None, span=self._span(substitution.start, substitution.end))
        try:
            return self._walk(frame, place)
        finally:
            self._origin = origin

    def _walk(self, frame: Frame, place: _Place) -> Sequence:
        structure, wrong = skeleton.parse(frame.skeleton, frame.start)
        if frame.trouble is not None or wrong is not None:
            base = self._origin.base
            where = None if wrong is None or base is None else base + wrong
            why = frame.trouble or "it is not valid bash"
            self.unreadable = self.unreadable or Unreadable(why=why, at=where)
        if wrong is not None:
            structure = _lines_before(frame, structure)
        outer = getattr(self, "_frame", None), getattr(self, "_starts", None), self._place
        self._enter(frame)
        try:
            self._visit(structure, place)
        finally:
            if outer[0] is not None and outer[1] is not None:
                self._frame, self._starts = outer[0], outer[1]
            self._place = outer[2]
        return structure

    def _enter(self, frame: Frame) -> None:
        self._frame = frame
        self._starts = [token.start for token in frame.tokens]

    # Structure

    def _visit(self, node: Node, place: _Place) -> None:
        match node:
            case Simple(start=start, end=end):
                self._place = place
                self._simple(start, end)
            case Sequence(items=items, background=background):
                for index, item in enumerate(items):
                    if index in background:
                        self._apart(item, msgspec.structs.replace(place, background=True))
                    else:
                        self._visit(item, place)
            case Pipeline(stages=stages):
                self._pipeline(stages, place)
            case Chain():
                self._chain(node, place)
            case Group(body=body, subshell=True):
                self._apart(body, place)
            case Group(body=body):
                self._visit(body, place)
            case If():
                self._if(node, place)
            case Loop():
                self._loop(node, place)
            case Case():
                self._case(node, place)
            case skeleton.Function():
                self._function(node, place)
            case Redirected(body=body, start=start, end=end):
                self._redirected(body, start, end, place)

    def _apart(self, node: Node, place: _Place) -> None:
        """In a subshell: what it changes is gone afterwards."""
        saved = self._state
        self._state = saved.copy()
        self._visit(node, place)
        self._state = saved

    def _perhaps(self, node: Node, place: _Place) -> None:
        saved = self._state.copy()
        self._visit(node, place)
        self._state = self._state.or_else(saved)

    def _pipeline(self, stages: list[Node], place: _Place) -> None:
        stdin, feeder = place.stdin, place.feeder
        for index, stage in enumerate(stages):
            before = len(self.commands)
            inner = msgspec.structs.replace(
                place,
                fed=place.fed or index > 0,
                feeds=place.feeds or index < len(stages) - 1,
                stdin=stdin,
                feeder=feeder,
            )
            self._apart(stage, inner)
            made = [each for each in self.commands[before:] if not each.substitution]
            feeder = made[0] if made and isinstance(stage, Simple) else None
            stdin = said(feeder) if feeder is not None else None

    def _chain(self, node: Chain, place: _Place) -> None:
        self._visit(node.left, place)
        saved = self._state.copy()
        self._visit(node.right, place)
        if node.operator == b"||" and self._leaves(node.right):
            self._state = saved
        else:
            self._state = self._state.or_else(saved)

    def _leaves(self, node: Node) -> bool:
        match node:
            case Simple(start=start, end=end):
                tokens = self._tokens(start, end)
                return bool(tokens) and self._written(tokens[0]) in _LEAVES
            case Group(body=Sequence(items=[*_, last]), subshell=False):
                return self._leaves(last)
            case _:
                return False

    def _if(self, node: If, place: _Place) -> None:
        ends = []
        for condition, body in node.arms:
            self._visit(condition, place)
            saved = self._state.copy()
            self._visit(body, place)
            ends.append(self._state)
            self._state = saved
        if node.otherwise is not None:
            self._visit(node.otherwise, place)
        for end in ends:
            self._state = self._state.or_else(end)

    def _loop(self, node: Loop, place: _Place) -> None:
        inner = msgspec.structs.replace(place, loop=True, stdin=None)
        self._forget_assigned(node.head[0])
        if node.condition is not None:
            self._visit(node.condition, inner)
        else:
            self._place = place
            self._for(self._tokens(*node.head))
        self._perhaps(node.body, inner)

    def _for(self, tokens: Items[lex.Token]) -> None:
        found = [token for token in tokens if isinstance(token, lex.Word)]
        if not found:
            return
        if found[0].is_test:
            words.visit(found[0].parts, self)
            return
        values = [each for word in found[1:] for each in words.expand(word, self)]
        value = Value(()) if values else UNKNOWN
        for each in values:
            texts = Value(each.texts, open=each.text is None or each.glob)
            value = either(value, texts)
        self.assign(self._written(found[0]), value)

    def _forget_assigned(self, start: int) -> None:
        """What a later turn of a loop assigns is open in an earlier line of it."""
        for token in self._frame.tokens[bisect_left(self._starts, start) :]:
            assigns = ASSIGNS.match(self._frame.source, token.start, token.end)
            if assigns:
                self.assign(assigns[1], UNKNOWN)

    def _case(self, node: Case, place: _Place) -> None:
        self._place = place
        for token in self._tokens(*node.head):
            self._expanded(token)
        ends = []
        saved = self._state
        for start, end, body in node.items:
            self._state = saved.copy()
            self._place = place
            for token in self._tokens(start, end):
                self._expanded(token)
            self._visit(body, place)
            ends.append(self._state)
        self._state = saved
        for end_state in ends:
            self._state = self._state.or_else(end_state)

    def _function(self, node: skeleton.Function, place: _Place) -> None:
        tokens = self._tokens(node.start, node.start + 1)
        name = self._written(tokens[0]) if tokens else b""
        before, saved = len(self.commands), self._state
        self._state = saved.copy()
        self._forget_positional()
        self._forget_assigned(node.start)
        inner = msgspec.structs.replace(
            place, function=True, fed=False, feeds=False, stdin=None, feeder=None
        )
        self._visit(node.body, inner)
        self._state = saved
        body = tuple(self.commands[before:])
        start, _ = self._span(node.start, node.start)
        function = Function(
            name=name,
            start=start,
            end=max([start + len(name), *(each.end for each in body)]),
            body=body,
            decides=_may_end(node.body, body),
        )
        self.functions.append(function)
        self._state.functions[name] = (node.body, self._frame)

    def _redirected(self, body: Node, start: int, end: int, place: _Place) -> None:
        self._place = place
        redirects = [
            self._redirect(token)
            for token in self._tokens(start, end)
            if isinstance(token, lex.Redirection)
        ]
        for redirect in redirects:
            if redirect.operator in (b"<<", b"<<<"):
                place = msgspec.structs.replace(place, stdin=redirect.body, fed=True)
            elif redirect.operator == b"<":
                place = msgspec.structs.replace(place, stdin=None, fed=True)
        self._emit(words=(), assignments=(), redirects=tuple(redirects), start=start, end=end)
        if any(redirect.of_output for redirect in redirects):
            place = msgspec.structs.replace(place, feeds=True)
        self._visit(body, place)

    # One command

    def _simple(self, start: int, end: int) -> None:
        tokens = self._tokens(start, end)
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        found: list[Word] = []
        written: list[lex.Word] = []
        for token in tokens:
            if isinstance(token, lex.Redirection):
                redirects.append(self._redirect(token))
            elif not written and self._assigns(token):
                assignments.append(self._assignment(token))
            else:
                written.append(token)
                found.extend(self._placed(each) for each in words.expand(token, self))
        if not written:
            for assignment, token in zip(assignments, self._assigning(tokens), strict=True):
                self._keep(assignment, token)
            if not redirects and not (self.unreadable and not assignments):
                return
        elif written[0].is_test:
            found = []
        if found or redirects:
            if tokens:
                start = min(start, tokens[0].start)
            self._emit(
                words=tuple(found),
                assignments=tuple(assignments),
                redirects=tuple(redirects),
                start=start,
                end=tokens[-1].end if tokens else end,
            )
            if found:
                self._affect(found, written)

    def _emit(
        self,
        *,
        words: tuple[Word, ...],
        assignments: tuple[Assignment, ...],
        redirects: tuple[Redirect, ...],
        start: int,
        end: int,
    ) -> None:
        place = self._place
        stdin = place.stdin
        for redirect in redirects:
            if redirect.operator in (b"<<", b"<<<"):
                stdin = redirect.body
            elif redirect.operator == b"<":
                stdin = None
        begin, stop = self._span(start, end)
        command = Command(
            words=words,
            assignments=assignments,
            redirects=redirects,
            start=begin,
            end=stop,
            cwd=self._state.cwd,
            stdin=stdin,
            fed=place.fed,
            feeds=place.feeds,
            feeder=place.feeder,
            background=place.background,
            substitution=place.substitution,
            function=place.function,
            loop=place.loop,
            via=place.via,
            exact=self._origin.base is not None,
            quotes=self._origin.quotes,
        )
        self._add(command)

    def _add(self, command: Command) -> None:
        if len(self.commands) >= _MOST_COMMANDS:
            raise Bomb(f"it would run more than {_MOST_COMMANDS} commands")
        if command.via:
            # What a function or a loop runs again says nothing new.
            key = (command.start, command.end, command.words, command.cwd, command.redirects)
            if key in self._seen:
                return
            self._seen.add(key)
        self.commands.append(command)
        if command.words and self._depth < _DEEPEST:
            self._depth += 1
            self._follow(command)
            self._depth -= 1

    # What it would run in turn

    def _follow(self, command: Command) -> None:
        first = command.words[0].text
        if first in self._state.functions and first is not None:
            self._call(command, first)
            return
        name = command.name or b"?"
        via = (*command.via, name)
        for each in inside(command):
            match each:
                case Runs(words=inner, directory=directory, adds=adds):
                    self._runs(command, inner, directory, adds=adds, via=via)
                case Reads(words=inner, positional=positional):
                    self._reads(inner, positional, via)
                case ReadsInput(positional=positional):
                    self._reads_input(command, positional, via)

    def _runs(
        self,
        command: Command,
        inner: tuple[Word, ...],
        directory: bytes | None,
        *,
        adds: bool,
        via: tuple[bytes, ...],
    ) -> None:
        if adds:
            inner += self._words_of_input(command, inner)
        cwd = command.cwd if directory is None else _at(command.cwd, directory)
        start = inner[0].start
        self._add(
            msgspec.structs.replace(
                command, words=inner, assignments=(), start=start, cwd=cwd, via=via
            )
        )

    def _words_of_input(self, command: Command, inner: tuple[Word, ...]) -> tuple[Word, ...]:
        """What xargs would add."""
        start, end = inner[-1].start, inner[-1].end
        if command.stdin is None:
            return (Word(start=start, end=end),)
        texts = command.stdin.replace(b"\0", b" ").split()
        return tuple(Word(start=start, end=end, text=each, prefix=each) for each in texts[:64])

    def _reads(
        self, inner: tuple[Word, ...], positional: tuple[Word, ...] | None, via: tuple[bytes, ...]
    ) -> None:
        if not inner:
            return
        texts = [word.texts for word in inner]
        if not all(texts):
            if positional is None:
                self._forget_everything()  # eval of who knows what
            return
        span = (inner[0].start, inner[-1].end)
        if len(inner) > 1:
            text = b" ".join(each[0] for each in texts)
            self._script(text, _Origin(base=None, span=span), positional, via)
            return
        for text in texts[0]:
            self._script(text, self._origin_of(inner[0], text), positional, via)

    def _reads_input(
        self, command: Command, positional: tuple[Word, ...], via: tuple[bytes, ...]
    ) -> None:
        if command.stdin is None:
            return
        origin = _Origin(base=None, span=(command.start, command.end))
        for redirect in command.redirects:
            if redirect.operator == b"<<" and redirect.body == command.stdin and command.exact:
                at = self._frame_text().find(redirect.body, command.start)
                if redirect.body and at >= 0:
                    origin = _Origin(base=at, quotes=command.quotes)
        self._script(command.stdin, origin, positional, via)

    def _frame_text(self) -> bytes:
        return self._frame.source

    def _origin_of(self, word: Word, text: bytes) -> _Origin:
        """A script that stands in one word as it is keeps its positions."""
        span = (word.start, word.end)
        base = self._origin.base
        if base is None or self._origin.quotes:
            return _Origin(base=None, span=span)
        written = self._frame.source[word.start - base : word.end - base]
        if written == text:
            return _Origin(base=word.start)
        for quote in (b"'", b'"'):
            if written == quote + text + quote:
                return _Origin(base=word.start + 1, quotes=quote)
        return _Origin(base=None, span=span)

    def _script(
        self,
        text: bytes,
        origin: _Origin,
        positional: tuple[Word, ...] | None,
        via: tuple[bytes, ...],
    ) -> None:
        saved, place = self._state, self._place
        if positional is not None:  # another shell: it knows what was exported, and that is open
            self._state = _State()
            self._state.cwd = saved.cwd
            self._state.variables = {
                name: value for name, value in saved.variables.items() if name == b"HOME"
            }
            self._set_positional(positional)
        self._place = msgspec.structs.replace(place, via=via, stdin=None)
        try:
            self.script(text, origin)
        finally:
            self._place = place
            if positional is not None:
                self._state = saved

    def _call(self, command: Command, name: bytes) -> None:
        """A function of the script's own, with these arguments."""
        if name in command.via:
            return
        body, frame = self._state.functions[name]
        if frame.source is not self._frame.source:
            return
        outer = self._frame, self._starts, self._place
        saved = {key: self._state.variables.get(key) for key in (b"1", b"2", b"3")}
        arguments = self._state.arrays.get(b"@")
        self._set_positional(command.arguments)
        if frame is not self._frame:
            self._enter(frame)
        place = msgspec.structs.replace(
            outer[2], via=(*command.via, name), function=True, stdin=command.stdin
        )
        try:
            self._visit(body, place)
        finally:
            self._frame, self._starts, self._place = outer
        self._forget_positional()
        for key, value in saved.items():
            if value is not None:
                self._state.variables[key] = value
        if arguments is not None:
            self._state.arrays[b"@"] = arguments

    # What it does to the state

    def _affect(self, found: list[Word], written: list[lex.Word]) -> None:
        name = found[0].text
        match name:
            case b"cd" | b"pushd":
                self._change_directory(found)
            case b"popd":
                self._state.cwd = None
            case b"read" | b"unset" | b"getopts" | b"mapfile" | b"readarray" | b"let":
                self._forget_named(found[1:])
            case b"printf" if len(found) > 2 and found[1].text == b"-v":
                self._forget_named(found[2:3])
            case b"source" | b"." | b"shopt":
                if name != b"shopt":
                    self._forget_everything()
            case b"shift":
                self._forget_positional()
            case b"set" if len(found) > 1 and found[1].text == b"--":
                self._set_positional(tuple(found[2:]))
            case _ if name in _DECLARES:
                for token in written[1:]:
                    if self._assigns(token):
                        self._keep(self._assignment(token), token)

    def _change_directory(self, found: list[Word]) -> None:
        arguments = [word for word in found[1:] if word.text not in (b"-P", b"-L", b"-e", b"--")]
        if not arguments:
            self._state.cwd = self.variable(b"HOME").text if found[0].text == b"cd" else None
        elif (
            len(arguments) > 1
            or arguments[0].text is None
            or arguments[0].glob
            or arguments[0].text == b"-"
            or arguments[0].text.startswith(b"+")
        ):
            self._state.cwd = None
        else:
            self._state.cwd = _at(self._state.cwd, arguments[0].text)

    def _forget_named(self, found: Items[Word]) -> None:
        for word in found:
            for text in word.texts:
                self.assign(text.partition(b"=")[0], UNKNOWN)

    def _forget_everything(self) -> None:
        self._state.variables = {b"HOME": self._state.variables.get(b"HOME", UNKNOWN)}
        self._state.arrays = {}
        self._state.cwd = None

    def _forget_positional(self) -> None:
        self._state.arrays.pop(b"@", None)
        for name in [name for name in self._state.variables if name.isdigit()]:
            del self._state.variables[name]

    def _set_positional(self, found: Items[Word]) -> None:
        self._forget_positional()
        values = [Value(word.texts, open=word.text is None) for word in found]
        self._state.arrays[b"@"] = tuple(values)
        for number, value in enumerate(values[:9], 1):
            self._state.variables[str(number).encode()] = value

    # Tokens

    def _tokens(self, start: int, end: int) -> list[lex.Token]:
        first = bisect_left(self._starts, start)
        last = bisect_left(self._starts, end, first)
        return self._frame.tokens[first:last]

    def _written(self, token: lex.Token) -> bytes:
        return self._frame.source[token.start : token.end]

    def _assigns(self, token: lex.Token) -> bool:
        return bool(ASSIGNS.match(self._frame.source, token.start, token.end))

    def _assigning(self, tokens: list[lex.Token]) -> list[lex.Word]:
        return [token for token in tokens if isinstance(token, lex.Word)]

    def _assignment(self, token: lex.Word) -> Assignment:
        found = ASSIGNS.match(self._frame.source, token.start, token.end)
        assert found is not None
        value = self._assigned(token, found.end())
        start, end = self._span(found.end(), token.end)
        text = value.text
        word = Word(start=start, end=end, text=text, maybe=() if text is not None else value.texts)
        begin, stop = self._span(token.start, token.end)
        return Assignment(name=found[1], value=word, start=begin, end=stop)

    def _assigned(self, token: lex.Word, at: int) -> Value:
        """The value behind the `=` at `at`."""
        parts: list[lex.Part] = []
        for part in token.parts:
            if part.start >= at:
                parts.append(part)
            elif isinstance(part, lex.Text) and part.end > at:
                parts.append(lex.Text(at, part.end, part.text[at - part.start :]))
        if token.broken:
            words.visit(parts, self)
            return UNKNOWN
        return words.join(parts, self, tildes=True)

    def _keep(self, assignment: Assignment, token: lex.Word) -> None:
        """An assignment that outlives its command."""
        written = self._written(token)
        found = ASSIGNS.match(written)
        assert found is not None
        name = assignment.name
        value = Value(assignment.value.texts, open=assignment.value.text is None)
        if found[2]:
            self._state.arrays.pop(name, None)
            self._state.variables[name] = UNKNOWN
            return
        array = next((part for part in token.parts if isinstance(part, lex.Array)), None)
        if found[3] == b"+=":
            old = self._state.variables.get(name, UNKNOWN).text
            new = value.text
            value = known(old + new) if old is not None and new is not None else UNKNOWN
            array = None
        if array is None:
            self.assign(name, value)
            return
        elements = [each for word in array.words for each in words.expand(word, self)]
        self._state.arrays[name] = tuple(
            Value(each.texts, open=each.text is None or each.glob) for each in elements
        )
        self._state.variables[name] = self._state.arrays[name][0] if elements else known(b"")

    def _expanded(self, token: lex.Token) -> list[Word]:
        if isinstance(token, lex.Redirection):
            return [self._redirect(token).target]
        return [self._placed(each) for each in words.expand(token, self)]

    def _redirect(self, token: lex.Redirection) -> Redirect:
        heredoc = token.heredoc
        begin, stop = self._span(token.start, token.end)
        body: bytes | None = None
        if heredoc is not None:
            target = Word(start=begin, end=stop)
            body = self._body(heredoc)
        else:
            found = self._expanded(token.target)
            target = found[0] if len(found) == 1 else Word(start=begin, end=stop)
            if token.operator == b"<<<" and target.text is not None:
                body = target.text + b"\n"
        descriptor: int | None = 0 if token.operator.startswith(b"<") else 1
        if token.descriptor:
            descriptor = int(token.descriptor) if token.descriptor.isdigit() else None
        return Redirect(
            operator=b"<<" if token.operator == b"<<-" else token.operator,
            descriptor=descriptor,
            target=target,
            body=body,
            start=begin,
            end=stop,
        )

    def _body(self, heredoc: lex.Heredoc) -> bytes | None:
        if heredoc.quoted:
            text: bytes | None = self._frame.source[heredoc.start : heredoc.end]
        else:
            text = words.join(heredoc.parts, self).text
        if text is not None and heredoc.strips:
            text = re.sub(rb"(?m)^\t+", b"", text)
        return text

    # Positions

    def _span(self, start: int, end: int) -> tuple[int, int]:
        base = self._origin.base
        return self._origin.span if base is None else (start + base, end + base)

    def _placed(self, word: Word) -> Word:
        if self._origin.base == 0:
            return word
        start, end = self._span(word.start, word.end)
        return msgspec.structs.replace(word, start=start, end=end)


def _at(cwd: bytes | None, path: bytes) -> bytes | None:
    """Where `cd path` leads."""
    return at(cwd or b"/", path) if cwd is not None or path.startswith(b"/") else None


def _may_end(node: Node, body: tuple[Command, ...]) -> bool:
    """Whether a function that calls itself could come to an end."""
    return _branches(node) or any(command.name in _DECIDES for command in body)


def _branches(node: Node) -> bool:
    match node:
        case If() | Loop() | Case() | Chain():
            return True
        case Sequence(items=items) | Pipeline(stages=items):
            return any(_branches(each) for each in items)
        case Group(body=body):
            return _branches(body)
        case Redirected(body=inner):
            return _branches(inner)
        case _:
            return False


def _lines_before(frame: Frame, structure: Sequence) -> Sequence:
    """bash runs the lines before a syntax error, so those are read by themselves."""
    for begin in reversed(frame.lines[-_TRIES:]):
        lines, wrong = skeleton.parse(frame.skeleton[: begin - frame.start], frame.start)
        if wrong is None:
            lines.items.extend(item for item in structure.items if _begin(item) >= begin)
            return lines
    return structure


def _begin(node: Node) -> int:
    match node:
        case Simple(start=start) | skeleton.Function(start=start):
            return start
        case Loop(head=head) | Case(head=head):
            return head[0]
        case Sequence(items=items) | Pipeline(stages=items):
            return _begin(items[0]) if items else -1
        case Group(body=body) | Redirected(body=body):
            return _begin(body)
        case Chain(left=left):
            return _begin(left)
        case If(arms=[(condition, _), *_]):
            return _begin(condition)
        case _:
            return -1
