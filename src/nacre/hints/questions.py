"""Whether an output ends in a question, as that of a program that asked for input. This module is
small, because almost every reply imports it."""


def ends_in_question(output: bytes, *, unterminated: bool) -> bool:
    """Return whether the output ends in a question such as `rm: remove file 'a'? `."""
    return unterminated and output.endswith(b"? ")
