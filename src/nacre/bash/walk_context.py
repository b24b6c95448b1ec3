"""Position of the analysis in a script, and the shell state known at that position.

This module is the lower half of the walk over a script: it turns tokens into words, redirections
and values. The module `walker`, the upper half of the walk over a script, visits the syntax tree.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from nacre.bash import expansion, tokens
from nacre.bash.commands import Assignment, ParsedCommand, Redirect, Word
from nacre.bash.known_state import KnownState, value_of
from nacre.bash.possible_values import UNKNOWN, UNSET, Value, known_text
from nacre.bash.tokens import Frame, Heredoc, Part, Redirection, Substitution, Token

# Shell variables whose values change without an assignment, so that their values are never known.
_ALIVE: Final = {b"RANDOM", b"SRANDOM", b"SECONDS", b"LINENO", b"EPOCHSECONDS", b"_", b"BASHPID"}
_ASSIGNED: Final = re.compile(
    rb"([A-Za-z_]\w*)(?:\[[^\]]*\])?\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)


class Origin(Struct, frozen=True, kw_only=True):
    """Position of an analyzed text, for example the string in `bash -c '...'`, in the script that
    was passed to `analyze`."""

    # offset of the analyzed text in the script; None if the script does not contain that text
    # verbatim
    base: int | None
    # start and end offset of the script's word that yields the analyzed text; used only if the
    # script does not contain the analyzed text verbatim
    span: tuple[int, int] = (0, 0)
    quotes: bytes = b""
    given: bool = False  # whether the analyzed text is in the script itself, not in a nested script

    def map_span(self, start: int, end: int) -> tuple[int, int]:
        return self.span if self.base is None else (start + self.base, end + self.base)


class Surroundings(Struct, frozen=True, kw_only=True):
    """Facts about the constructs that enclose a command: pipes, loops, functions and
    substitutions."""

    fed: bool = False
    feeds: bool = False
    background: bool = False
    substitution: bool = False
    function: bool = False
    loop: bool = False
    tested: bool = False
    stdin: bytes | None = None
    feeder: ParsedCommand | None = None
    via: tuple[bytes, ...] = ()


class Context:
    """State of the walk over a script; this class also implements `Scope`, from which the word
    expansion reads variables."""

    def __init__(self, home: bytes | None, cwd: bytes | None) -> None:
        self.state = KnownState()
        self.state.cwd = cwd
        if home is not None:
            self.state.variables[b"HOME"] = known_text(home)
        self.origin = Origin(base=0)
        self.place = Surroundings()
        self.frame = Frame(b"", 0, 0, [], [], b"", [])

    # Methods of `Scope`, the interface through which the word expansion reads variables.

    def variable(self, name: bytes) -> Value:
        if name == b"PWD" and name not in self.state.variables:
            cwd = self.state.cwd
            return UNKNOWN if cwd is None else known_text(cwd)
        if name.isdigit() and name != b"0":
            values = self.state.arrays.get(b"@")
            if values is None:
                return UNKNOWN
            number = int(name[:6])
            return values[number - 1] if number <= len(values) else UNSET
        if name in _ALIVE or (name == b"PWD" and name in self.state.variables):
            return UNKNOWN
        return self.state.variables.get(name, UNKNOWN)

    def elements(self, name: bytes) -> tuple[Value, ...] | None:
        return self.state.arrays.get(b"@" if name == b"*" else name)

    def assign(self, name: bytes, value: Value) -> None:
        self.state.assign(name, value)

    def arithmetic(self, start: int, end: int) -> None:
        """Mark every variable that an arithmetic expression assigns as unknown, because the
        assigned numbers are not computed."""
        for found in _ASSIGNED.finditer(self.frame.source, start, end):
            self.state.assign(found[1] or found[2], UNKNOWN)

    def output(self, substitution: Substitution) -> Value:
        raise NotImplementedError

    # Methods that find and expand the tokens of `self.frame`, the text that is being analyzed.

    def tokens_in(self, start: int, end: int) -> list[Token]:
        starts = self.frame.starts
        first = bisect_left(starts, start)
        return self.frame.tokens[first : bisect_left(starts, end, first)]

    def tokens_from(self, start: int) -> list[Token]:
        return self.frame.tokens[bisect_left(self.frame.starts, start) :]

    def build_word(self, token: Token) -> bytes:
        return self.frame.source[token.start : token.end]

    def expand_word(self, token: tokens.WordToken) -> list[Word]:
        found = expansion.expand_word(token, self)
        return found if self.origin.base == 0 else [self._with_position(each) for each in found]

    def _with_position(self, word: Word) -> Word:
        start, end = self.origin.map_span(word.start, word.end)
        return msgspec.structs.replace(word, start=start, end=end)

    # Methods that evaluate assignments.

    def assignment(self, token: tokens.WordToken) -> Assignment:
        found = token.assigns
        assert found is not None
        start, end = self.origin.map_span(found.end(), token.end)
        begin, stop = self.origin.map_span(token.start, token.end)
        array = next((part for part in token.parts if isinstance(part, tokens.Array)), None)
        if array is not None:
            return Assignment(
                name=found[1],
                value=Word(start=start, end=end),
                elements=tuple(each for word in array.words for each in self.expand_word(word)),
                start=begin,
                end=stop,
            )
        value = self._assigned_value(token, found.end())
        text = value.text
        word = Word(start=start, end=end, text=text, maybe=() if text is not None else value.texts)
        return Assignment(name=found[1], value=word, start=begin, end=stop)

    def _assigned_value(self, token: tokens.WordToken, at: int) -> Value:
        """Return the value that an assignment token assigns; `at` is the offset of the text after
        its `=`."""
        parts: list[Part] = []
        for part in token.parts:
            if part.start >= at:
                parts.append(part)
            elif isinstance(part, tokens.Text) and part.end > at:
                parts.append(tokens.Text(at, part.end, part.text[at - part.start :]))
            else:  # part of an array subscript before the `=`, as in `name[$i]=value`
                expansion.visit_parts([part], self)
        if token.broken:
            expansion.visit_parts(parts, self)
            return UNKNOWN
        return expansion.join_parts(parts, self, tildes=True)

    def keep_assignment(self, assignment: Assignment, token: tokens.WordToken) -> None:
        """Store the value of an assignment that stays in effect for later commands."""
        found = token.assigns
        assert found is not None
        name, value = assignment.name, value_of(assignment.value)
        elements = tuple(map(value_of, assignment.elements or ()))
        if found[2]:  # the assignment sets one element of an array
            self.state.assign(name, UNKNOWN)
        elif assignment.elements is not None:
            before = self.state.arrays.get(name) if found[3] == b"+=" else ()
            if before is None:
                self.state.assign(name, UNKNOWN)
            else:
                self.state.assign_array(name, before + elements)
        elif found[3] == b"+=":
            old, new = self.variable(name).text, value.text
            known_both = old is not None and new is not None
            self.state.assign(
                name, known_text((old or b"") + (new or b"")) if known_both else UNKNOWN
            )
        else:
            self.state.assign(name, value)

    def forget_assigned(self, start: int) -> None:
        """Mark as unknown every variable that is assigned after the offset `start`. A shell
        function that is defined at `start` may be called after any assignment that follows it in
        the script."""
        for token in self.tokens_from(start):
            if isinstance(token, tokens.WordToken) and token.assigns:
                self.state.assign(token.assigns[1], UNKNOWN)

    # Methods that evaluate redirections and heredocs.

    def redirects(self, found: Sequence[Token]) -> tuple[Redirect, ...]:
        return tuple(self.redirect(each) for each in found if isinstance(each, Redirection))

    def redirect(self, token: Redirection) -> Redirect:
        begin, stop = self.origin.map_span(token.start, token.end)
        target, body, body_at = Word(start=begin, end=stop), None, None
        if token.heredoc is not None:
            body = self._body(token.heredoc)
            written = self.frame.source[token.heredoc.start : token.heredoc.end]
            if body == written and self.origin.base is not None:
                body_at = self.origin.base + token.heredoc.start
        else:
            found = self.expand_word(token.target)
            target = found[0] if len(found) == 1 else target
            if token.operator == b"<<<" and target.text is not None:
                body = target.text + b"\n"
            elif token.operator == b"<":
                body = target.content
        descriptor: int | None = 0 if token.operator.startswith(b"<") else 1
        if token.descriptor:
            descriptor = int(token.descriptor[:6]) if token.descriptor.isdigit() else None
        return Redirect(
            operator=b"<<" if token.operator == b"<<-" else token.operator,
            descriptor=descriptor,
            target=target,
            body=body,
            body_at=body_at,
            start=begin,
            end=stop,
        )

    def _body(self, heredoc: Heredoc) -> bytes | None:
        if heredoc.quoted:
            text: bytes | None = self.frame.source[heredoc.start : heredoc.end]
        else:
            text = expansion.join_parts(heredoc.parts, self).text
        if text is not None and heredoc.strips:
            text = re.sub(rb"(?m)^\t+", b"", text)
        return text
