"""Whether an output ends in a question, as that of a program that asked for input. This module is
small, because almost every reply imports it."""

import re
from typing import Final

# A question with its choices, such as `Stage this hunk [y,n,q]? `; git ends its line when stdin is
# empty.
_WITH_CHOICES: Final = re.compile(rb"\[[^\]\n]{1,60}\]\? \n\Z")
_LONGEST: Final = 300  # maximum bytes of the end of the output that the pattern sees


def ends_in_question(output: bytes, *, unterminated: bool) -> bool:
    """Return whether the output ends in a question such as `rm: remove file 'a'? `."""
    if unterminated:
        return output.endswith(b"? ")
    return output.endswith(b"? \n") and _WITH_CHOICES.search(output[-_LONGEST:]) is not None
