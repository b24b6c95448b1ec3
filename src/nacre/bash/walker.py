"""Walk over the syntax tree of a script, in the order in which bash would run its commands.

The walker tracks what is known about the state of the shell, such as its variables and its
directory. A branch or a loop may or may not run, so the values of the variables that it changes are
uncertain afterwards.
"""

import re
from collections.abc import Iterator
from collections.abc import Sequence as Items
from typing import Final

import msgspec

from nacre.bash import expansion, syntax_tree, tokens
from nacre.bash.builtin_effects import apply_builtin
from nacre.bash.commands import (
    Assignment,
    Function,
    ParsedCommand,
    Redirect,
    Unreadable,
    Word,
    program_name,
)
from nacre.bash.known_state import Body, KnownState, value_of
from nacre.bash.nested_commands import NestedCommands
from nacre.bash.possible_values import UNKNOWN, Value, known_text, merge_values
from nacre.bash.predicted_output import predict_output
from nacre.bash.syntax_tree import (
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
from nacre.bash.tokens import Frame, Substitution
from nacre.bash.walk_context import Origin, Surroundings

_LEAVES: Final = {b"exit", b"return", b"break", b"continue"}
# Commands that may change the variables, the directory or other known state of the shell.
_CHANGE: Final = {
    *(b"cd", b"pushd", b"popd", b"read", b"unset", b"shift", b"set", b"let", b"printf", b"eval"),
    *(b"declare", b"local", b"export", b"readonly", b"typeset", b"source", b".", b"mapfile"),
    *(b"readarray", b"getopts", b"command", b"builtin"),
}
# Keyword `!` at the end of the text before a command, also before a group `{` or `(`.
_NEGATION: Final = re.compile(
    rb"(?:^|[\s;&|({])!(?=[ \t\\])(?:[ \t{(]|\\\n|time(?: -p)?(?=[ \t]))*\Z"
)
_MAX_NEGATION: Final = 32  # maximum bytes before a command in which its `!` is searched
_QUOTES: Final = re.compile(rb"[\\'\"]")
_TESTS: Final = {b"[", b"test"}
_MAX_LOOP_DEPTH: Final = 2
_DECIDES: Final = _LEAVES | {b"[", b"test"}
_PLAIN: Final = {b"command", b"builtin", b"env"}


class Walker(NestedCommands):
    def __init__(self, home: bytes | None, cwd: bytes | None) -> None:
        super().__init__(home, cwd)
        self.functions: list[Function] = []
        self.unreadable: Unreadable | None = None
        # Number of nested loops that the walker is visiting on trial, to find out which part of the
        # known shell state the loops change.
        self._turns = 0

    def output(self, substitution: Substitution) -> Value:
        place = Surroundings(substitution=True, via=self.place.via, function=self.place.function)
        before, saved = len(self.commands), self.state
        self.state = saved.copy()
        structure = self._inner(substitution, place)
        self.state = saved
        built = self.commands[before:]
        only = (
            len(built) == 1 and len(structure.items) == 1 and isinstance(structure.items[0], Simple)
        )
        text = predict_output(built[0]) if only else None
        return UNKNOWN if text is None else known_text(text.replace(b"\0", b"").rstrip(b"\n"))

    # Methods that visit scripts and frames (texts of commands).

    def _inner(self, substitution: Substitution, place: Surroundings) -> Sequence:
        frame, origin = substitution.frame, self.origin
        if frame.source is not self.frame.source:
            # A command inside backticks with escapes gets the position of the whole backtick
            # substitution, because the command's unescaped text does not occur in the script.
            span = origin.map_span(substitution.start, substitution.end)
            self.origin = Origin(base=None, span=span, given=origin.given)
        try:
            return self.walk(frame, place)
        finally:
            self.origin = origin

    def walk(self, frame: Frame, place: Surroundings) -> Sequence:
        structure, wrong = syntax_tree.parse(frame.skeleton, frame.start, frame.lines)
        if self.origin.given and (frame.trouble is not None or wrong is not None):
            where = None if self.origin.base is None else wrong
            why = frame.trouble or "it is not valid bash"
            self.unreadable = self.unreadable or Unreadable(why=why, at=where)
        outer, around = self.frame, self.place
        self.frame = frame
        try:
            self.visit(structure, place)
        finally:
            self.frame = outer
            self.place = around
        return structure

    # Methods that visit the nodes of the syntax tree.

    def visit(self, node: Node, place: Surroundings) -> None:
        match node:
            case Simple(start=start, end=end):
                self.place = place
                self._simple(start, end)
            case Sequence(items=items, background=background):
                for index, item in enumerate(items):
                    if index in background:
                        self._visit_subshell(item, msgspec.structs.replace(place, background=True))
                    else:
                        self.visit(item, place)
            case Pipeline(stages=stages):
                self._pipeline(stages, place)
            case Chain():
                self._chain(node, place)
            case Group(body=body, subshell=True):
                self._visit_subshell(body, place)
            case Group(body=body):
                self.visit(body, place)
            case If():
                self._if(node, place)
            case Loop():
                self._loop(node, place)
            case Case():
                self._case(node, place)
            case syntax_tree.FunctionDefinition():
                self._function(node, place)
            case Redirected(body=body, start=start, end=end):
                self._redirected(body, start, end, place)

    def _visit_subshell(self, node: Node, place: Surroundings) -> None:
        """Visit a node that runs in a subshell, and discard its changes to the known shell state
        afterwards."""
        saved = self.state
        self.state = saved.copy()
        self.visit(node, place)
        self.state = saved

    def _visit_conditional(self, node: Node, place: Surroundings) -> None:
        saved = self.state.copy()
        self.visit(node, place)
        self.state = self.state.merge(saved)

    def _pipeline(self, stages: list[Node], place: Surroundings) -> None:
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
            self._visit_subshell(stage, inner)
            built = [each for each in self.commands[before:] if not each.substitution]
            feeder = built[0] if built and isinstance(stage, Simple) else None
            stdin = _predict_stage(stage, built)

    def _chain(self, node: Chain, place: Surroundings) -> None:
        """Visit a chain of commands such as `a && b || c`. The command after `&&` runs if the chain
        to the left of `&&` has succeeded."""
        steps = [(b"", node.right)]
        left: Node = node
        while isinstance(left, Chain):
            steps[-1] = (left.operator, left.right)
            left = left.left
            steps.append((b"", left))
        # Shell states that are possible if the visited part of a chain such as `a && b` has failed.
        failed: list[KnownState] = []
        tested_place = msgspec.structs.replace(place, tested=True)
        for index, (operator, step) in reversed([*enumerate(steps)]):
            worked = self.state
            if operator == b"||":
                self.state = _merge_states(failed) if failed else worked.copy()
            else:
                self.state = worked.copy()
            self.visit(step, tested_place if index else place)
            if operator != b"||":
                failed.append(self.state.copy())
                self.state.mark_not_empty(self._tested_names(step))
            elif self._leaves(step):
                self.state, failed = worked, []
            else:
                failed = [self.state.copy()]
                self.state = self.state.merge(worked)
        self.state = _merge_states([self.state, *failed])

    def _tested_names(self, node: Node) -> set[bytes]:
        """Return the names of the variables that a test command such as `[ -n "$x" ]` mentions.
        After a test command has succeeded, the analysis assumes that the variables that the test
        mentions are not empty."""
        if not isinstance(node, Simple):
            return set()
        found = [t for t in self.tokens_in(node.start, node.end) if isinstance(t, tokens.WordToken)]
        if not found or not (found[0].is_test or self.build_word(found[0]) in _TESTS):
            return set()
        return {name for token in found for name in _names(token.parts)}

    def _leaves(self, node: Node) -> bool:
        match node:
            case Simple(start=start, end=end):
                found = self.tokens_in(start, end)
                return bool(found) and self.build_word(found[0]) in _LEAVES
            case Group(body=Sequence(items=[*_, last]), subshell=False):
                return self._leaves(last)
            case _:
                return False

    def _if(self, node: If, place: Surroundings) -> None:
        ends = []
        for condition, body in node.arms:
            self.visit(condition, msgspec.structs.replace(place, tested=True))
            saved = self.state.copy()
            for each in condition.items:
                self.state.mark_not_empty(self._tested_names(each))
            self.visit(body, place)
            ends.append(self.state)
            self.state = saved
        if node.otherwise is not None:
            self.visit(node.otherwise, place)
        for end in ends:
            self.state = self.state.merge(end)

    def _loop(self, node: Loop, place: Surroundings) -> None:
        if self._may_change(node.head[0]):
            self._forget_changed(node, place)
        self._visit_loop_body(node, place)

    def _forget_changed(self, node: Loop, place: Surroundings) -> None:
        """Visit a loop once on trial, and merge its changes into the known shell state, because a
        value that one iteration changes is uncertain in the next iteration."""
        if self._turns >= _MAX_LOOP_DEPTH:
            self.state.forget_everything()
            return
        self._turns += 1
        before, count, defined = self.state.copy(), len(self.commands), len(self.functions)
        seen = set(self._seen)
        self._visit_loop_body(node, place)
        del self.commands[count:], self.functions[defined:]
        self._seen = seen
        self.state = self.state.merge(before)
        self._turns -= 1

    def _may_change(self, start: int) -> bool:
        """Return whether any token after the offset `start` could change the known shell state;
        most loops contain no such token."""
        for token in self.tokens_from(start):
            if isinstance(token, tokens.WordToken):
                if token.assigns or token.is_test or (not token.plain and _may_assign(token.parts)):
                    return True
                name = _QUOTES.sub(b"", self.build_word(token))
                if name in _CHANGE or name in self.state.functions:
                    return True
        return False

    def _visit_loop_body(self, node: Loop, place: Surroundings) -> None:
        if node.condition is not None:
            self.visit(node.condition, msgspec.structs.replace(place, loop=True))
        else:
            self.place = place
            self._for(self.tokens_in(*node.head))
        self._visit_conditional(node.body, msgspec.structs.replace(place, loop=True, stdin=None))

    def _for(self, head: Items[tokens.Token]) -> None:
        found = [token for token in head if isinstance(token, tokens.WordToken)]
        if not found:
            return
        if found[0].is_test:
            expansion.visit_parts(found[0].parts, self)
            return
        values = [each for word in found[1:] for each in expansion.expand_word(word, self)]
        value = Value(()) if values else UNKNOWN
        for each in values:
            value = merge_values(value, value_of(each))
        self.assign(self.build_word(found[0]), value)

    def _case(self, node: Case, place: Surroundings) -> None:
        self.place = place
        self._expand_all(self.tokens_in(*node.head))
        ends = []
        saved = self.state
        for start, end, body in node.items:
            self.state = saved.copy()
            self.place = place
            self._expand_all(self.tokens_in(start, end))
            self.visit(body, place)
            ends.append(self.state)
        self.state = saved
        for end_state in ends:
            self.state = self.state.merge(end_state)

    def _expand_all(self, found: Items[tokens.Token]) -> None:
        for token in found:
            if isinstance(token, tokens.WordToken):
                self.expand_word(token)

    def _function(self, node: syntax_tree.FunctionDefinition, place: Surroundings) -> None:
        named = self.tokens_in(node.start, node.start + 1)
        name = self.build_word(named[0]) if named else b""
        before, saved = len(self.commands), self.state
        self.state = saved.copy()
        self.state.forget_positional()
        self.forget_assigned(node.start)
        inner = msgspec.structs.replace(
            place, function=True, fed=False, feeds=False, stdin=None, feeder=None
        )
        self.visit(node.body, inner)
        self.state = saved
        body = tuple(self.commands[before:])
        start, _ = self.origin.map_span(node.start, node.start)
        function = Function(
            name=name,
            start=start,
            end=max([start + len(name), *(each.end for each in body)]),
            body=body,
            decides=_may_end(node.body, body),
        )
        self.functions.append(function)
        self.state.functions[name] = (Body(node.body, self.frame),)

    def _redirected(self, body: Node, start: int, end: int, place: Surroundings) -> None:
        self.place = place
        redirects = self.redirects(self.tokens_in(start, end))
        for redirect in redirects:
            if redirect.is_input:
                place = msgspec.structs.replace(place, stdin=redirect.body, fed=True)
        self._emit(words=(), assignments=(), redirects=redirects, start=start, end=end)
        if any(redirect.is_stdout for redirect in redirects):
            place = msgspec.structs.replace(place, feeds=True)
        self.visit(body, place)

    # Methods that visit one simple command.

    def _simple(self, start: int, end: int) -> None:
        if self._is_negated(start):
            self.place = msgspec.structs.replace(self.place, tested=True)
        found = self.tokens_in(start, end)
        written = [token for token in found if isinstance(token, tokens.WordToken)]
        leading = 0
        while leading < len(written) and written[leading].assigns:
            leading += 1
        only_assigns = leading == len(written)
        assignments = []
        for token in written[:leading]:
            assignments.append(self.assignment(token))
            # An assignment without a command stays in effect, so the next assignment can use its
            # value, as in `a=1 b=$a`.
            if only_assigns:
                self.keep_assignment(assignments[-1], token)
        arrays = [token for token in written[leading:] if _has_array(token)]
        built = [
            word
            for token in written[leading:]
            for word in (
                self.expand_word(token) if token not in arrays else [self._literal_word(token)]
            )
        ]
        redirects = self.redirects(found)
        if not only_assigns and written[leading].is_test:
            built = []
            self.arithmetic(written[leading].start, written[leading].end)
        if built or redirects:
            self._emit(
                words=tuple(built),
                assignments=tuple(assignments),
                redirects=redirects,
                start=start,
                end=found[-1].end,
            )
        for token in arrays:
            self.keep_assignment(self.assignment(token), token)

    def _is_negated(self, start: int) -> bool:
        """Return whether a `!` before the command at the offset `start` negates its exit status.
        The syntax tree does not have the keyword `!`."""
        before = self.frame.source[max(self.frame.start, start - _MAX_NEGATION) : start]
        return b"!" in before and _NEGATION.search(before) is not None

    def _literal_word(self, token: tokens.WordToken) -> Word:
        """Return a `Word` for an array assignment such as `name=(a b)`, with its position and the
        variable's name, but without the elements of the array."""
        start, end = self.origin.map_span(token.start, token.end)
        assert token.assigns is not None
        return Word(start=start, end=end, prefix=token.assigns[1])

    def _emit(
        self,
        *,
        words: tuple[Word, ...],
        assignments: tuple[Assignment, ...],
        redirects: tuple[Redirect, ...],
        start: int,
        end: int,
    ) -> None:
        place = self.place
        stdin = place.stdin
        for redirect in redirects:
            if redirect.is_input:
                stdin = redirect.body
        begin, stop = self.origin.map_span(start, end)
        command = ParsedCommand(
            words=words,
            name=program_name(words),
            assignments=assignments,
            redirects=redirects,
            start=begin,
            end=stop,
            cwd=self.state.cwd,
            stdin=stdin,
            fed=place.fed,
            feeds=place.feeds,
            feeder=place.feeder,
            background=place.background,
            substitution=place.substitution,
            function=place.function,
            loop=place.loop,
            tested=place.tested,
            via=place.via,
            exact=self.origin.base is not None,
            quotes=self.origin.quotes,
        )
        self.add(command)
        if words:
            apply_builtin(self.state, words, stdin)


def _names(parts: list[tokens.Part]) -> Iterator[bytes]:
    for part in parts:
        if isinstance(part, tokens.Parameter):
            yield part.name
        elif isinstance(part, tokens.Double):
            yield from _names(part.parts)


def _may_assign(parts: list[tokens.Part]) -> bool:
    """Return whether an expansion may assign a variable, as `$((x++))` and `${x:=y}` do."""
    for part in parts:
        match part:
            case tokens.Sum():
                return True
            case tokens.Parameter(operator=operator, argument=inner):
                if operator.endswith(b"=") or _may_assign(inner):
                    return True
            case tokens.Double(parts=inner):
                if _may_assign(inner):
                    return True
    return False


def _merge_states(states: list[KnownState]) -> KnownState:
    built = states[0]
    for each in states[1:]:
        built = built.merge(each)
    return built


def _has_array(token: tokens.WordToken) -> bool:
    return token.assigns is not None and any(isinstance(each, tokens.Array) for each in token.parts)


def _predict_stage(stage: Node, built: list[ParsedCommand]) -> bytes | None:
    """Return the text that a pipeline stage prints; None if it cannot be predicted."""
    if isinstance(stage, Simple):
        return predict_output(built[-1]) if built and _PLAIN.issuperset(built[-1].via) else None
    if not isinstance(stage, Group) or stage.body.background:
        return None
    if not all(isinstance(each, Simple) for each in stage.body.items):
        return None
    texts = [predict_output(each) for each in built]
    return None if None in texts else b"".join(each for each in texts if each)


def _may_end(node: Node, body: tuple[ParsedCommand, ...]) -> bool:
    """Return whether a shell function could end even if it calls itself, because it has a
    condition, a loop or a `return`."""
    return _branches(node) or any(command.name in _DECIDES for command in body)


def _branches(node: Node) -> bool:
    match node:
        case Loop(condition=Sequence(items=[Simple()]), body=body):
            # A loop whose condition is one command may be endless, as `while true` is, so only the
            # loop's body is checked. `_may_end` recognizes a loop such as `while test ...` by the
            # command name `test`.
            return _branches(body)
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
