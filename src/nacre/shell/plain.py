"""Commands that cannot change the shell that runs them, seen at once.

One program with its words and nothing else: no assignment, expansion, redirection or list, and no
builtin but those that only look or speak. Whatever is in doubt is not plain; being wrong in that
direction only costs a copy of the shell.
"""

import re
from typing import Final

from nacre.shell.state import SET, State

_WORD: Final = rb"(?:[\w./:@%+,=-]|'[^']*'|\"[^\"$`\\!]*\")+"
_ONE_COMMAND: Final = re.compile(rb"\s*([\w./+-]+)(?:[ \t]+%b)*\s*" % _WORD)
# bash's own, which change it, or words with a meaning of their own.
_NOT_PLAIN: Final = frozenset(
    b". alias bg bind break builtin caller case cd command compgen complete compopt continue "
    b"coproc declare dirs disown do done elif else enable esac eval exec exit export fc fg fi for "
    b"function getopts hash help history if in jobs kill let local logout mapfile popd printf "
    b"pushd read readarray readonly return select set shift shopt source suspend then time times "
    b"trap typeset ulimit umask unalias unset until wait while".split()
)


def is_plain(script: bytes, state: State | None) -> bool:
    """Whether a shell with this state is the same after it, but for the status."""
    found = _ONE_COMMAND.fullmatch(script)
    if found is None or found[1] in _NOT_PLAIN:
        return False
    if state is None:
        return True
    if state.traps or frozenset(state.set) != SET:
        return False
    name = found[1]
    if name in state.names or b"command_not_found_handle" in state.names:
        return False
    return b"alias %b=" % name not in state.aliases
