"""Bash code that the shell of a session runs in addition to the script of a command."""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

_HERE: Final = os.fsencode(os.path.dirname(os.path.abspath(__file__)))
SAVE_SCRIPT: Final = _HERE + b"/save.bash"
_RESTORE_SCRIPT: Final = _HERE + b"/restore.bash"
_WAIT_SCRIPT: Final = _HERE + b"/wait.bash"
_TRAP_FUNCTION: Final = _HERE + b"/trap.bash"


OWN_NAMES: Final = b"_nacre_"


def quote(word: bytes) -> bytes:
    return b"'" + word.replace(b"'", b"'\\''") + b"'"


def build_loader(
    control: int, file: int, state: int, idle: int | None, umask: int | None = None
) -> bytes:
    """Return the loader: the bash code with which a session's shell is started.

    The bash code that starts a session's shell is a single line, so that the script of the command
    begins at line 1. `idle` is the number of seconds that the shell waits for its script before it
    exits. If `idle` is given, the descriptor `control`, on which the shell waits, must be below
    1024, because bash cannot wait with a timeout on a higher descriptor.
    """
    # Option for the `read -r` command with which the shell waits for its script: `-t` with the
    # timeout, or, if there is no timeout, a second `-r`, which has no effect.
    goes = b"-r" if idle is None else b"-t%d" % idle
    return (
        (b"" if umask is None else b"\\builtin umask %o; " % umask)
        + b"_nacre_in=%d _nacre_file=%d _nacre_state=%d _nacre_idle=%b; "
        b'\\builtin . %b; \\builtin eval -- "${_nacre_told-}" 2>/dev/null; '
        b"\\builtin . %b && \\builtin :; "
        b'\\builtin eval -- "${_nacre_late-}$BASH_EXECUTION_STRING"'
        % (control, file, state, goes, quote(_RESTORE_SCRIPT), quote(_WAIT_SCRIPT))
    )


# Redirections for code in a subshell: the code prints nothing, even under `set -x`. In the shell
# itself, the assignment of BASH_XTRACEFD would outlast the code, and hide the trace of the user.
_QUIETLY: Final = b"2>/dev/null {BASH_XTRACEFD}>/dev/null"
# Bash code that sets `$?` to the exit status of the session's previous command. `_AGAIN` sets `$?`
# by running a child process, and only a trap on CHLD can notice the child process. For a session
# with a trap on CHLD, `_AGAIN_UNSEEN` sets `$?` by a function call, which needs no child process.
_AGAIN: Final = b"( \\builtin exit %%d ) >/dev/null %b && \\builtin :; " % _QUIETLY
_AGAIN_UNSEEN: Final = (
    b"_nacre_again() { \\builtin unset -f _nacre_again; \\builtin return %d; }; "
    b"{ _nacre_again; } 2>/dev/null && \\builtin :; "
)


def build_call(
    *,
    draft: bytes | None,
    mark: bytes,
    status: int,
    directory: bytes | None,
    home: bytes | None,
    root: bytes | None = None,
    env: Mapping[bytes, bytes],
    traps: bool = True,
    own_trap: bool = False,
    seen: bool = False,
) -> bytes:
    """Return bash code that prepares the shell for one tool call and runs before the command's
    script.

    The bash code that `build_call` returns changes the directory, sets variables, and makes the
    shell save its state when the shell ends. If `draft`, the file for the saved state, is None, the
    shell's state is not saved. `directory` is the start directory of the command; None means the
    session's own directory. `home` is the session's own directory, which the session keeps if the
    command ends in the directory where it started. `root` is the directory of a session whose
    directory no command can change; None for other sessions. `traps` means that the shell prints
    its traps on INT and QUIT to a file when it ends. `own_trap` means that the script may set an
    EXIT trap of its own, which runs besides the EXIT trap that saves the state. `seen` means that
    the session has a trap that would notice a child process.
    """
    said = []
    if directory is not None:
        # A shell that is already in its directory does not change OLDPWD. A prewarmed shell may be
        # in a directory that was deleted and created again.
        there = quote(directory)
        said.append(b"\\builtin test . -ef %b || \\builtin cd -- %b 2>/dev/null" % (there, there))
    for name, value in env.items():
        if name.startswith(OWN_NAMES):  # names with the prefix `_nacre_` are nacre's own
            continue
        # A session's variable may be a nameref (a reference to another variable): unset the
        # nameref, not its target.
        said.append(b"\\builtin unset -n %b 2>/dev/null" % name)
        said.append(b"\\builtin unset -v %b 2>/dev/null" % name)
        said.append(b"\\builtin export %b=%b 2>/dev/null" % (name, quote(value)))
    if draft is not None:
        saves = _exit_trap(draft, mark, directory, home, root, traps)
        alone = quote(saves.saver + b" &" + saves.more)
        said.append(b"\\builtin trap -- %b EXIT" % alone)
        if own_trap:
            both = quote(_with_own_trap(saves))
            said.append(b"_nacre_alone=%b _nacre_both=%b" % (alone, both))
            said.append(_read_trap_function())
    # The code in the variable `_nacre_late` changes `$?`, so nacre appends a command that sets `$?`
    # back to the exit status of the session's previous command.
    if status:
        again = quote((_AGAIN_UNSEEN if seen else _AGAIN) % status)
        said.append(b'\\builtin test -n "${_nacre_late-}" && _nacre_late+=%b' % again)
    said.append(b"\\builtin unset -v _nacre_line")
    said.append(b"\\builtin return %d" % status)
    return b"\n".join(said)


class _ExitTrap(NamedTuple):
    """Parts of the EXIT trap that saves the state of a session's shell."""

    saver: bytes  # runs in a forked copy of the shell
    more: bytes  # runs in the shell itself


def _exit_trap(
    draft: bytes,
    mark: bytes,
    directory: bytes | None,
    home: bytes | None,
    root: bytes | None,
    traps: bool,
) -> _ExitTrap:
    """Return the EXIT trap, in which a forked copy of the shell saves the shell's state while the
    shell exits.

    All commands of the EXIT trap except the last one run in the forked copy of the shell, because a
    trap of the user could notice commands that run in the shell itself. The last command of the
    EXIT trap, which prints the shell's traps on INT and QUIT to a file, takes time and is left out
    if `traps` is False.
    """
    came = b""
    if root is not None:
        came = b" _nacre_root=%b" % quote(root)
    elif directory is not None and home is not None:
        came = b" _nacre_from=%b _nacre_home=%b" % (quote(directory), quote(home))
    saves = (
        b"( _nacre_status=$? _nacre_shopt=$BASHOPTS _nacre_mark=%b%b; "
        b"\\builtin shopt -u expand_aliases; \\. %b )" % (mark, came, quote(SAVE_SCRIPT))
    )
    saver = b"%b %b {_nacre_fd}>|%b </dev/null >/dev/null" % (saves, _QUIETLY, quote(draft))
    more = b""
    if traps:
        more = b" ! { \\builtin trap -p INT QUIT; } 2>/dev/null >|%b" % quote(draft + b".traps")
    return _ExitTrap(saver, more)


def _with_own_trap(saves: _ExitTrap) -> bytes:
    """Return the EXIT trap for a shell in which the user has set an EXIT trap: it saves the state,
    and then runs the trap of the user, which is in the variable `_nacre_exit`.

    The saver comes first, because the trap of the user may call `exit`. The saver runs in the
    foreground, because a background process would change `$!`.
    """
    front = saves.saver.replace(b"_nacre_status=$?", b"_nacre_status=$_nacre_ended", 1)
    more = b"%b || \\builtin :;" % saves.more if saves.more else b""
    # Each command of nacre is followed by `||`, because with `set -e` a failure would end the trap.
    # Tracing (`set -x`) is off for the code of nacre, and on again for the trap of the user.
    return (
        b"{ _nacre_ended=$?; } 2>/dev/null || \\builtin :; %b || \\builtin :; "
        b"{ _nacre_flags=$-; \\builtin set +x; } 2>/dev/null || \\builtin :; %b "
        b"_nacre_again() { [[ $_nacre_flags != *x* ]] || \\builtin set -x; "
        b"\\builtin return $_nacre_ended; }; "
        b"\\builtin eval -- "
        b'"{ _nacre_again; } 2>/dev/null && { \\\\builtin :; } 2>/dev/null; $_nacre_exit"'
        % (front, more)
    )


@lru_cache(maxsize=1)
def _read_trap_function() -> bytes:
    with open(_TRAP_FUNCTION, "rb") as file:
        return file.read()
