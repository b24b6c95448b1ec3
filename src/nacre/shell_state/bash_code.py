"""What is said to a shell of a session, besides its script."""

import os
from collections.abc import Mapping
from typing import Final

_HERE: Final = os.fsencode(os.path.dirname(os.path.abspath(__file__)))
SAVE_SCRIPT: Final = _HERE + b"/save.bash"
_RESTORE_SCRIPT: Final = _HERE + b"/restore.bash"
_WAIT_SCRIPT: Final = _HERE + b"/wait.bash"


OWN_NAMES: Final = b"_nacre_"


def quote(word: bytes) -> bytes:
    return b"'" + word.replace(b"'", b"'\\''") + b"'"


def build_loader(
    control: int, file: int, state: int, idle: int | None, umask: int | None = None
) -> bytes:
    """What a shell is started with; one line, so that its script begins at line 1. `idle`: seconds
    after which it goes; bash can wait for those only with descriptors below 1024."""
    goes = b"-r" if idle is None else b"-t%d" % idle  # an option of `read`
    return (
        (b"" if umask is None else b"\\builtin umask %o; " % umask)
        + b"_nacre_in=%d _nacre_file=%d _nacre_state=%d _nacre_idle=%b; "
        b'\\builtin . %b; \\builtin eval -- "${_nacre_told-}" 2>/dev/null; '
        b"\\builtin . %b && \\builtin :; "
        b'\\builtin eval -- "${_nacre_late-}$BASH_EXECUTION_STRING"'
        % (control, file, state, goes, quote(_RESTORE_SCRIPT), quote(_WAIT_SCRIPT))
    )


# To have a status again: by a child, which no trap sees but one on CHLD; else by a function.
_QUIETLY: Final = b"2>/dev/null {BASH_XTRACEFD}>/dev/null"
_AGAIN: Final = b"( \\builtin exit %%d ) >/dev/null %b && \\builtin :; " % _QUIETLY
_AGAIN_UNSEEN: Final = (
    b"_nacre_again() { \\builtin unset -f _nacre_again; \\builtin return %%d; }; "
    b"{ _nacre_again; } %b && \\builtin :; " % _QUIETLY
)


def build_call(
    *,
    draft: bytes | None,
    mark: bytes,
    status: int,
    directory: bytes | None,
    home: bytes | None,
    env: Mapping[bytes, bytes],
    traps: bool = True,
    seen: bool = False,
) -> bytes:
    """What belongs to one call: where it begins, its variables, and that its state is saved, if
    there is a draft for it.
    `directory`: where it begins, if not where the session stands; `home`: where that stays unless
    the command itself goes elsewhere; `traps`: what it does at INT and QUIT is looked at; `seen`:
    the session would notice a child of ours."""
    said = []
    if directory is not None:
        said.append(b"\\builtin cd -- %b 2>/dev/null" % quote(directory))
    for name, value in env.items():
        if name.startswith(OWN_NAMES):  # which are ours
            continue
        said.append(b"\\builtin unset -n %b 2>/dev/null" % name)  # not what it stands for
        said.append(b"\\builtin unset -v %b 2>/dev/null" % name)
        said.append(b"\\builtin export %b=%b 2>/dev/null" % (name, quote(value)))
    if draft is not None:
        saves = _exit_trap(draft, mark, directory, home, traps)
        said.append(b"\\builtin trap -- %b EXIT" % quote(saves))
    if status:  # lost on the way, if there is anything else to do before the script
        again = quote((_AGAIN_UNSEEN if seen else _AGAIN) % status)
        said.append(b'\\builtin test -n "${_nacre_late-}" && _nacre_late+=%b' % again)
    said.append(b"\\builtin unset -v _nacre_line")
    said.append(b"\\builtin return %d" % status)
    return b"\n".join(said)


def _exit_trap(
    draft: bytes, mark: bytes, directory: bytes | None, home: bytes | None, traps: bool
) -> bytes:
    """A copy of the shell saves its state, while it ends itself. Nothing here is a command of the
    shell's own, which a trap of its user could see, but the last one; what that prints goes to a
    file, and it is left out where it can be, since it takes its time."""
    came = b""
    if directory is not None and home is not None:
        came = b" _nacre_from=%b _nacre_home=%b" % (quote(directory), quote(home))
    saves = (
        b"( _nacre_status=$? _nacre_shopt=$BASHOPTS _nacre_mark=%b%b; "
        b"\\builtin shopt -u expand_aliases; \\. %b )" % (mark, came, quote(SAVE_SCRIPT))
    )
    said = b"%b %b {_nacre_fd}>|%b </dev/null >/dev/null &" % (saves, _QUIETLY, quote(draft))
    if traps:
        said += b" ! { \\builtin trap -p INT QUIT; } %b >|%b" % (
            _QUIETLY,
            quote(draft + b".traps"),
        )
    return said
