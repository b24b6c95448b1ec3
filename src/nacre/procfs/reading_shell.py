"""The shell that blocks in a read from its stdin, and the script file that it executes.

A shell keeps the script file open while it executes the script, as in `bash deploy.sh` and
`./deploy.sh`: bash at descriptor 255, dash (often `/bin/sh`) at descriptor 10. A shell that was
started with `-c` has no such descriptor, nor has the subshell `( … )` of a script file.
"""

import os
import stat
from typing import Final, NamedTuple

from nacre.procfs import processes

_SH: Final = b"/bin/sh"
_BASH_FD: Final = 255
_DASH_FD: Final = 10
_MAX_SCRIPT: Final = 256 * 1024  # maximum bytes of a script file that is read
_MAX_DEPTH: Final = 10  # maximum depth of subshells


class ReadingShell(NamedTuple):
    # Content of the script file that the shell executes; None: it executes a script without a file.
    script: bytes | None


def identify_shell(pid: int, shell: bytes) -> ReadingShell | None:
    """Return what the process with this pid executes if it runs the program `shell` (a bash) or
    `/bin/sh`. Return None if the process is no shell, if its script file is too long, or if a shell
    with another script file has started it."""
    if not _is_shell(pid, shell):
        return None
    pid = _leave_subshells(pid, shell)
    path, outer = _find_script(pid, shell), _find_script(_parent(pid), shell)
    if outer is not None:
        return None
    if path is None:
        return ReadingShell(script=None)
    try:
        with open(path, "rb", buffering=0) as file:
            script = file.read(_MAX_SCRIPT + 1)
    except OSError:
        return None
    return ReadingShell(script) if len(script) <= _MAX_SCRIPT else None


def _leave_subshells(pid: int, shell: bytes) -> int:
    """Return the pid of the shell that has forked a subshell; for a shell that is no subshell, its
    own pid."""
    for _ in range(_MAX_DEPTH):
        parent = _parent(pid)
        if not _is_shell(parent, shell):
            break
        if processes.command_line(parent) != processes.command_line(pid):
            break
        pid = parent
    return pid


def _parent(pid: int) -> int:
    process = processes.read_process(pid)
    return 0 if process is None else process.parent


def _is_shell(pid: int, shell: bytes) -> bool:
    return any(processes.runs_program(pid, each) for each in (shell, _SH))


def _find_script(pid: int, shell: bytes) -> str | None:
    """Return the path in /proc of the script file that a shell executes; None if the process is no
    shell, or executes no file."""
    if processes.runs_program(pid, shell):
        path = f"/proc/{pid}/fd/{_BASH_FD}"
    elif processes.runs_program(pid, _SH):
        path = f"/proc/{pid}/fd/{_DASH_FD}"
    else:
        return None
    try:
        return path if stat.S_ISREG(os.stat(path).st_mode) else None
    except OSError:
        return None
