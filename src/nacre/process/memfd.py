"""Sealed memory files: a command's stdin, and a script that is too long for an argument.

A memory file needs no process that writes to it, leaves nothing on disk, and ends with EOF.
"""

import fcntl
import os
from typing import Final

# bytes; Linux allows 128 KiB for one argument, including its final NUL
LONGEST_ARGUMENT: Final = 128 * 1024 - 1
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def create_memfd(name: str, content: bytes) -> int:
    """Return the descriptor of a sealed memory file with this content, positioned at its start."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def build_script_loader(fd: int) -> bytes:
    """Return a short script that closes `fd` and runs the script that it has read from `fd`.

    So the child processes of the script do not inherit `fd`. `eval` parses a script as `bash -c`
    does. The only difference is that the message of a syntax error contains `eval:`.
    """
    return b'eval "exec %d<&-; $(</dev/fd/%d)"' % (fd, fd)
