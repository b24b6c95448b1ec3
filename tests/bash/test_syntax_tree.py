"""Tests of `bash.syntax_tree`: how commands that are joined by `|`, `&&` and `||` are nested."""

from hypothesis import given
from hypothesis import strategies as st

from nacre.bash import lexer, syntax_tree
from nacre.bash.syntax_tree import Chain, Group, Node, Pipeline, Redirected, Simple

COMMANDS = ("a", "b -x", "c 2>&1", "d > out", "(e)", "(f) 2>&1", "{ g; }", "{ h; } > out")
COMMAND = st.sampled_from(COMMANDS)
PIPELINE = st.lists(COMMAND, min_size=1, max_size=4)
OPERATOR = st.sampled_from(["&&", "||"])


def parse(text: bytes) -> Node:
    frame = lexer.tokenize(text)
    structure, wrong = syntax_tree.parse(frame.skeleton, frame.start, frame.lines)
    assert wrong is None
    assert structure.background == set()
    (node,) = structure.items
    return node


def draw(node: Node, text: bytes) -> str:
    """Return the text of the node with parentheses around everything that is joined."""
    match node:
        case Chain(left=left, operator=operator, right=right):
            return f"<{draw(left, text)} {operator.decode()} {draw(right, text)}>"
        case Pipeline(stages=stages):
            return f"<{' | '.join(draw(each, text) for each in stages)}>"
        case Simple(start=start, end=end):
            return text[start:end].decode()
        case Group(body=body, subshell=subshell):
            (inside,) = body.items
            return f"({draw(inside, text)})" if subshell else f"{{ {draw(inside, text)}; }}"
        case Redirected(body=body, start=start, end=end):
            return f"{draw(body, text)} {text[start:end].decode().strip()}"
        case _:
            raise AssertionError(node)


def bracket(pipeline: list[str]) -> str:
    return f"<{' | '.join(pipeline)}>" if len(pipeline) > 1 else pipeline[0]


@given(PIPELINE, st.lists(st.tuples(OPERATOR, PIPELINE), max_size=4))
def test_joined_commands_are_nested_as_bash_nests_them(
    first: list[str], more: list[tuple[str, list[str]]]
) -> None:
    text, wanted = " | ".join(first), bracket(first)
    for operator, pipeline in more:
        text += f" {operator} {' | '.join(pipeline)}"
        wanted = f"<{wanted} {operator} {bracket(pipeline)}>"
    assert draw(parse(text.encode()), text.encode()) == wanted


def test_a_long_chain_needs_no_deep_stack() -> None:
    node = parse(b" | ".join([b"a && b"] * 3000))
    depth = 0
    while isinstance(node, Chain):
        node, depth = node.left, depth + 1
    assert depth == 3000
