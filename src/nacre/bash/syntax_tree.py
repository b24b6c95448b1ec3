"""Syntax tree of a frame (text of commands), made with the parser library tree-sitter.

The module `syntax_tree` is the only one in nacre that uses tree-sitter. tree-sitter parses only
a skeleton of the commands, in which every word is a run of underscores (see `lexer`), so the
nodes of tree-sitter describe only the structure of the commands. The module `syntax_tree` converts
the nodes of tree-sitter to a few small node types. Where tree-sitter reports a syntax error, the
syntax tree is a sequence of the commands that tree-sitter did recognize.
"""

import os
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any, Final, NamedTuple

import tree_sitter
from msgspec import Struct

_PIECE_SIZE: Final = 1024
_LOOSE: Final = {"word", "variable_name", "special_variable_name"}


def _grammar() -> object:
    """Load the bash grammar of tree-sitter from the extension module in the package
    `tree_sitter_bash`, without importing the package itself if possible. Importing the package
    `tree_sitter_bash` takes as long as importing the rest of the code that reads a script: it loads
    a dozen modules (pathlib, urllib, tempfile) to find queries that nacre does not use."""
    package = find_spec("tree_sitter_bash")
    for place in (package and package.submodule_search_locations) or ():
        for suffix in EXTENSION_SUFFIXES:
            path = f"{place}/_binding{suffix}"
            if os.path.isfile(path):
                loader = ExtensionFileLoader("tree_sitter_bash._binding", path)
                found = spec_from_file_location("tree_sitter_bash._binding", path, loader=loader)
                if found is not None:
                    module = module_from_spec(found)
                    loader.exec_module(module)
                    return module.language()
    import tree_sitter_bash

    return tree_sitter_bash.language()


_PARSER: Final = tree_sitter.Parser(tree_sitter.Language(_grammar()))


class Simple(Struct, gc=False):
    """Simple command, which consists of the tokens between the offsets `start` and `end`."""

    start: int
    end: int


class Sequence(Struct, gc=False):
    """Commands that run one after the other. `background` holds the indexes of the commands that
    end with `&`."""

    items: "list[Node]"
    background: set[int]


class Chain(Struct, gc=False):
    left: "Node"
    operator: bytes  # operator between the two commands: `&&` or `||`
    right: "Node"


class Pipeline(Struct, gc=False):
    stages: "list[Node]"
    start: int  # offset of the first stage
    end: int  # offset of the end of the last stage


class Group(Struct, gc=False):
    body: Sequence
    subshell: bool


class If(Struct, gc=False):
    # pairs of condition and body, one for `if` and one for each `elif`
    arms: list[tuple[Sequence, Sequence]]
    otherwise: Sequence | None


class Loop(Struct, gc=False):
    """Loop of the kind `for`, `select`, `while` or `until`. `head` is the span of the text before
    the loop's body, for example `for x in a b`. `condition` holds the commands that a `while` or
    `until` loop tests; it is None for a `for` or `select` loop."""

    head: tuple[int, int]
    condition: Sequence | None
    body: Sequence


class Case(Struct, gc=False):
    head: tuple[int, int]  # span from the keyword `case` to the first item of the `case` command
    # start and end of the patterns of each `case` item, and the commands of the item
    items: list[tuple[int, int, Sequence]]


class FunctionDefinition(Struct, gc=False):
    start: int  # byte offset of the function's name
    body: "Node"


class Redirected(Struct, gc=False):
    """Compound command with redirections; the redirection tokens lie between the offsets `start`
    and `end`."""

    body: "Node"
    start: int
    end: int


Node = (
    Simple
    | Sequence
    | Chain
    | Pipeline
    | Group
    | If
    | Loop
    | Case
    | FunctionDefinition
    | Redirected
)


def parse(skeleton: bytes, base: int, lines: Iterable[int] = ()) -> tuple[Sequence, int | None]:
    """Parse a skeleton (text of commands in which every word is a run of underscores); return its
    syntax tree, and the position of its first syntax error (None if it has no error).

    The skeleton is a copy of a part of the script; `base` is the offset of that part in the script,
    and is added to all positions in the result. `lines` holds the positions of commands that can be
    parsed without the text before them. tree-sitter gets the text in pieces that begin at positions
    in `lines`, so that a syntax error in one piece does not affect the other pieces. tree-sitter
    gets the text in small pieces, because its error recovery takes longer the more text there is.
    """
    whole = Sequence([], set())
    wrong: int | None = None
    for start, end in _split_at_cuts(len(skeleton), [line - base for line in lines], _PIECE_SIZE):
        nodes, odd = _parse_piece(skeleton[start:end], base + start)
        if odd is not None and end - start > 1:
            inner = [line - base - start for line in lines if start < line - base < end]
            parts = [
                _parse_piece(skeleton[start + a : start + b], base + start + a)
                for a, b in _split_at_cuts(end - start, inner, 0)
            ]
            for each, _ in parts:
                _append_nodes(whole, each)
            odd = next((where for _, where in parts if where is not None), odd)
        else:
            _append_nodes(whole, nodes)
        wrong = odd if wrong is None else wrong
    return whole, wrong


def _split_at_cuts(length: int, cuts: list[int], least: int) -> Iterator[tuple[int, int]]:
    """Split a text of `length` bytes at some of the offsets in `cuts`, so that every piece except
    the last is longer than `least` bytes; yield the (start, end) span of each piece."""
    start = 0
    for cut in cuts:
        if cut - start > least and cut < length:
            yield start, cut
            start = cut
    yield start, length


def _append_nodes(whole: Sequence, more: Sequence) -> None:
    whole.background.update(each + len(whole.items) for each in more.background)
    whole.items.extend(more.items)


def _parse_piece(skeleton: bytes, base: int) -> tuple[Sequence, int | None]:
    maker = _TreeBuilder(skeleton, base)
    root = _PARSER.parse(skeleton).root_node
    if root.has_error:
        maker.wrong = _first_error(root) + base
    return maker.sequence(root.children), maker.wrong


def _first_error(node: Any) -> int:
    for child in node.children:
        if child.type == "ERROR" or child.is_missing:
            return int(child.start_byte)
        if child.has_error:
            return _first_error(child)
    return int(node.start_byte)


def _is_joined(node: Any) -> bool:
    """Return whether a node of tree-sitter is several commands joined by `|`, `&&` or `||`."""
    if node is None or node.type not in ("list", "pipeline"):
        return False
    return node.type == "pipeline" or (len(node.children) == 3 and not node.children[1].is_named)


def _redirected_body(node: Any) -> Any:
    """Return the command of a `redirected_statement`, or None if it has not exactly one."""
    body = [each for each in node.children if each.type != "file_redirect"]
    return body[0] if len(body) == 1 else None


class _Operand(NamedTuple):
    """Command that is joined to others by `|`, `&&` or `||`, with its span in the script."""

    operator: bytes  # the operator before the command; empty before the first command
    node: Node
    start: int
    end: int


class _TreeBuilder:
    def __init__(self, skeleton: bytes, base: int) -> None:
        self._skeleton = skeleton
        self._base = base
        self.wrong: int | None = None

    def sequence(self, children: list[Any]) -> Sequence:
        items: list[Node] = []
        background: set[int] = set()
        loose: Simple | None = None  # words that tree-sitter did not recognize as a command
        for child in children:
            if child.type in _LOOSE and loose is not None:
                loose.end = child.end_byte + self._base
                continue
            loose = None
            if child.is_named:
                nodes = self._nodes(child)
                items.extend(nodes)
                if child.type in _LOOSE and nodes and isinstance(nodes[0], Simple):
                    loose = nodes[0]
            elif child.type == "&" and items:
                background.add(len(items) - 1)
        return Sequence(items, background)

    def _nodes(self, node: Any) -> "list[Node]":
        """Convert a node of tree-sitter to objects of the type `Node`. A tree-sitter node without
        commands yields an empty list. For a tree-sitter node of unknown type, such as a syntax
        error, `_nodes` converts the node's children."""
        match node.type:
            case "command" | "word" | "variable_name" | "special_variable_name":
                return self._simple(node)
            case "list" | "pipeline" if _is_joined(node):
                return [self._chain(node)]
            case "redirected_statement" if _is_joined(_redirected_body(node)):
                return [self._chain(node)]
            case "negated_command":
                return self._nodes(node.children[-1])
            case "redirected_statement":
                return self._redirected(node)
            case "compound_statement" | "subshell" | "do_group":
                inside = self.sequence(node.children)
                return [Group(inside, subshell=node.type == "subshell")]
            case "if_statement":
                return [self._if(node)]
            case "while_statement" | "for_statement":
                return [self._loop(node)]
            case "case_statement":
                return [self._case(node)]
            case "function_definition":
                return self._function(node)
        return self.sequence(node.children).items

    def _chain(self, node: Any) -> Node:
        """Convert commands that are joined by `|`, `&&` and `||`. tree-sitter nests them wrongly,
        for example `a | b | c && d` as `a | (b | c && d)`, so that only their order is used."""
        pipelines: list[list[_Operand]] = []
        for each in self._operands(node):
            if pipelines and each.operator.startswith(b"|") and each.operator != b"||":
                pipelines[-1].append(each)
            else:
                pipelines.append([each])
        chain: Node | None = None
        for stages in pipelines:
            first, last = stages[0], stages[-1]
            part: Node = first.node
            if len(stages) > 1:
                part = Pipeline([each.node for each in stages], first.start, last.end)
            chain = part if chain is None else Chain(chain, first.operator, part)
        return chain if chain is not None else Sequence([], set())

    def _operands(self, node: Any) -> list[_Operand]:
        """Return the commands that are joined by `|`, `&&` and `||`, each with the operator before
        it. A loop replaces recursion, because a chain of commands may be long."""
        found: list[_Operand] = []
        operator = b""
        stack: list[Any] = [node]
        while stack:
            each = stack.pop()
            if isinstance(each, tuple):  # redirections, which belong to the command before them
                body = Redirected(found[-1].node, *each)
                found[-1] = found[-1]._replace(node=body, end=each[1])
            elif _is_joined(each):
                stack.extend(reversed(each.children))
            elif each.type == "negated_command" and _is_joined(each.children[-1]):
                stack.append(each.children[-1])
            elif each.type == "redirected_statement" and _is_joined(_redirected_body(each)):
                inner = _redirected_body(each)
                stack += [(inner.end_byte + self._base, each.end_byte + self._base), inner]
            elif each.is_named:
                start, end = each.start_byte + self._base, each.end_byte + self._base
                found.append(_Operand(operator, self._one(each), start, end))
            else:
                operator = each.type.encode()
        return found

    def _one(self, node: Any) -> Node:
        found = self._nodes(node)
        return found[0] if len(found) == 1 else Sequence(found, set())

    def _simple(self, node: Any) -> "list[Node]":
        start, end = node.start_byte, node.end_byte
        if start == end:
            return []
        if self._skeleton[start] != 0x5F:  # tree-sitter mistook a keyword for a command
            self._note_error(start)
        return [Simple(start + self._base, end + self._base)]

    def _redirected(self, node: Any) -> "list[Node]":
        first = _redirected_body(node)
        if first is None:
            return [Simple(node.start_byte + self._base, node.end_byte + self._base)]
        begin, end = first.end_byte + self._base, node.end_byte + self._base
        return [Redirected(self._one(first), begin, end)]

    def _if(self, node: Any) -> If:
        arms: list[tuple[Sequence, Sequence]] = []
        otherwise: Sequence | None = None
        for clause in (node, *(each for each in node.children if each.type.endswith("_clause"))):
            own = [each for each in clause.children if not each.type.endswith("_clause")]
            if clause.type == "else_clause":
                otherwise = self.sequence(own)
                continue
            then = next((i for i, each in enumerate(own) if each.type == "then"), len(own))
            arms.append((self.sequence(own[:then]), self.sequence(own[then:])))
        return If(arms, otherwise)

    def _loop(self, node: Any) -> Loop:
        body = next((each for each in node.children if each.type == "do_group"), None)
        inside = Sequence([], set()) if body is None else self.sequence(body.children)
        end = node.end_byte if body is None else body.start_byte
        head = (node.start_byte + self._base, end + self._base)
        if node.type == "for_statement":
            return Loop(head, None, inside)
        before = [each for each in node.children if body is None or each.end_byte <= end]
        return Loop(head, self.sequence(before), inside)

    def _case(self, node: Any) -> Case:
        items = []
        first = node.end_byte
        for item in (each for each in node.children if each.type == "case_item"):
            first = min(first, item.start_byte)
            closing = next((i for i, c in enumerate(item.children) if c.type == ")"), None)
            if closing is None:
                self._note_error(item.start_byte)
                continue
            ends = item.children[closing].start_byte
            body = self.sequence(item.children[closing + 1 :])
            items.append((item.start_byte + self._base, ends + self._base, body))
        return Case((node.start_byte + self._base, first + self._base), items)

    def _function(self, node: Any) -> "list[Node]":
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return self.sequence(node.children).items
        nodes: list[Node] = [FunctionDefinition(name.start_byte + self._base, self._one(body))]
        if node.end_byte > body.end_byte:
            nodes = [Redirected(nodes[0], body.end_byte + self._base, node.end_byte + self._base)]
        return nodes

    def _note_error(self, at: int) -> None:
        at += self._base
        self.wrong = at if self.wrong is None else min(self.wrong, at)
