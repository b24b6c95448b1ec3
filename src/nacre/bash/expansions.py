"""Parameters that a script expands, such as `$HOME` and `${NAME:-none}`."""

from collections.abc import Iterator

from nacre.bash import lexer, tokens
from nacre.bash.tokens import Parameter, Substitution, TooComplex

# Operators with which a script expands a parameter that may be unset to another value.
_DEFAULTS = (b"-", b":-", b"=", b":=")


def find_required_parameters(script: bytes) -> set[bytes]:
    """Return the names of the parameters that a script expands without a default, also in its
    substitutions and here-documents. Text in single quotes and comments are no expansions."""
    try:
        found = [*_find_parameters(lexer.tokenize(script))]
    except (TooComplex, RecursionError):
        return set()
    return {each.name for each in found if not each.operator.startswith(_DEFAULTS)}


def _find_parameters(frame: tokens.Frame) -> Iterator[Parameter]:
    for part in tokens.inner_parts(frame.tokens):
        if isinstance(part, Parameter):
            yield part
        elif isinstance(part, Substitution):
            yield from _find_parameters(part.frame)
