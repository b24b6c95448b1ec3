"""Quick check for commands that cannot change the shell that runs them.

Such a script consists of programs with their arguments and redirections, in sequence or in
pipelines. The script has no assignment, no `$` expansion and no background job. Its only builtins
are those that just read or print something. In doubt, a script counts as one that changes the
shell. A mistake in that direction only costs a fork of the shell.
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
    """Return whether the script leaves a shell with this state unchanged, except for `$?`."""
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
    """Return the first word of each command, or an empty set for any other kind of script."""
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
