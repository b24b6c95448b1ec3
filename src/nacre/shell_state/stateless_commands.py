"""Commands that cannot change the shell that runs them, seen at once.

Programs with their words, one after the other or in a pipeline, and where they read and write: no
assignment, expansion or job, and no builtin but those that only look or speak. Whatever is in doubt
is not plain; being wrong in that direction only costs a copy of the shell.
"""

import re
from typing import Final

from nacre.shell_state.state import SET, ShellState

_WORD: Final = rb"""(?:[\w./:@%+,=~^*?\[\]-]|'[^']*+'|"[^"$`\\!]*+")++"""
_REDIRECTION: Final = rb"(?:\d?>&[12]|(?:\d?[<>]|\d?>>|&>)[ \t]*+%b)" % _WORD
_COMMAND: Final = re.compile(
    rb"[ \t]*+(?!\d+[<>]|-)([\w./+-]++)(?:[ \t]++%b|[ \t]*+%b)*+[ \t]*+" % (_WORD, _REDIRECTION)
)
_NEXT: Final = re.compile(rb"(?:&&|\|\|?|[;\n])\s*+")
# bash's own, which change it, or words with a meaning of their own.
_STATEFUL: Final = frozenset(
    b". alias bg bind break builtin caller case cd command compgen complete compopt continue "
    b"coproc declare dirs disown do done elif else enable esac eval exec exit export fc fg fi for "
    b"function getopts hash help history if in jobs kill let local logout mapfile popd printf "
    b"pushd read readarray readonly return select set shift shopt source suspend test then time "
    b"times trap typeset ulimit umask unalias unset until wait while".split()
)


def is_unchanging(script: bytes, state: ShellState | None) -> bool:
    """Whether a shell with this state is the same after it, but for the status."""
    names = _command_names(script)
    if not names or not _STATEFUL.isdisjoint(names):
        return False
    if state is None:
        return True
    if state.traps or frozenset(state.set) != SET:
        return False
    if b"command_not_found_handle" in state.names or not names.isdisjoint(state.names):
        return False
    return not any(b"alias %b=" % name in state.aliases for name in names)


def _command_names(script: bytes) -> set[bytes]:
    """The first word of each command; nothing, where there is anything but such commands."""
    script, at = script.strip(), 0
    found = set()
    while command := _COMMAND.match(script, at):
        found.add(command[1])
        if command.end() == len(script):
            return found
        following = _NEXT.match(script, command.end())
        if following is None:
            break
        at = following.end()
    return set()
