"""Check that the shell that a user has chosen understands the bash code of nacre."""

import os
import select
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from functools import lru_cache
from typing import Final

# Seconds that a shell may take for the check; a shell that needs longer is not usable.
_TIMEOUT: Final = 10.0
_MAX_OUTPUT: Final = 1024  # maximum bytes of output that the check reads
_OLDEST: Final = (4, 4)  # oldest version of bash whose builtins can save the state of a shell
# Script that fails in a shell that is not compatible with bash. It uses what the scripts of a
# session use: arrays, `mapfile`, attributes of variables and descriptors in variables.
_SCRIPT: Final = r"""
declare -a a=(x y)
mapfile -d '' -t b < <(printf '%s\0' 1 2)
declare -i n=1
exec {fd}>/dev/null
[[ ${#a[@]}${#b[@]}${n@a} == 22i && $fd -gt 9 ]] &&
builtin printf '%s ' bash "${BASH_VERSINFO[@]:0:2}"
"""


def find_shell(given: str) -> bytes:
    """Return the path of the shell that the option `shell` names, after running the shell once.
    Raises ValueError for a program that does not exist, or that is not compatible with bash."""
    path = shutil.which(os.path.expanduser(given))
    if path is None:
        raise ValueError(f"shell {given!r} is not a program; give the path of a bash")
    path = os.path.abspath(path)
    problem = _find_problem(path, os.stat(path).st_mtime_ns)
    if problem is not None:
        raise ValueError(f"shell {given!r} cannot be used: {problem}; give the path of a bash")
    return os.fsencode(path)


@lru_cache(maxsize=16)
def _find_problem(path: str, modified_ns: int) -> str | None:
    """Run a shell, and return why nacre cannot use the shell; None if nacre can use the shell. The
    result is cached for each path and modification time of the program."""
    del modified_ns
    try:
        process = subprocess.Popen(
            [path, "-c", _SCRIPT],
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return error.strerror or str(error)
    with process:
        output = _read_output(process)
        # The shell leads a process group of its own. The group cannot have another meaning yet,
        # because the shell is not reaped before the end of the `with` block.
        with suppress(ProcessLookupError):  # a host that ignores SIGCHLD has no zombies
            os.killpg(process.pid, signal.SIGKILL)
    if output is None:
        return f"it did not answer in {_TIMEOUT:g} s"
    match output.split():
        case [b"bash", major, minor] if major.isdigit() and minor.isdigit():
            version = int(major), int(minor)
            if version >= _OLDEST:
                return None
            return f"it is bash {version[0]}.{version[1]}; 4.4 is the oldest that works"
    return "it is not compatible with bash"


def _read_output(process: "subprocess.Popen[bytes]") -> bytes | None:
    """Return the output of a shell up to its end, but only as much as the check needs; return None
    if the output does not end in time."""
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    output, deadline = b"", time.monotonic() + _TIMEOUT
    while len(output) < _MAX_OUTPUT:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return None
        part = os.read(process.stdout.fileno(), _MAX_OUTPUT)
        if not part:
            break
        output += part
    return output
