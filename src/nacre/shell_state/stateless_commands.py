"""Quick check for scripts that cannot change the state of the shell that runs them.

A script that cannot change its shell consists of programs with their arguments and redirections, in
sequence or in pipelines. A script with an assignment, a `$` expansion or a background job may
change its shell. A script that cannot change its shell uses only builtins that just read or print
something. In doubt, a script counts as one that changes its shell, because a mistake in that
direction only costs a fork of the shell.
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
# Builtins that may change the shell, and reserved words of bash.
_STATEFUL: Final = frozenset(
    b". alias bg bind break builtin caller case cd command compgen complete compopt continue "
    b"coproc declare dirs disown do done elif else enable esac eval exec exit export fc fg fi for "
    b"function getopts hash help history if in jobs kill let local logout mapfile popd printf "
    b"pushd read readarray readonly return select set shift shopt source suspend test then time "
    b"times trap typeset ulimit umask unalias unset until wait while".split()
)


def is_unchanging(script: bytes, state: ShellState | None) -> bool:
    """Return whether a script leaves a shell with the given state unchanged, except for `$?`."""
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
    """Return the first word of each command in a script, or an empty set if the script is not just
    commands in sequence or in pipelines."""
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
