"""Sealed memory files, for a command's stdin and for a script that is too long for an argument.

A reader of a memory file gets all bytes and then EOF. A memory file leaves nothing on disk, and
unlike a pipe, it needs no process that writes while the reader reads.
"""

import fcntl
import os
from typing import Final

# maximum bytes of one argument of a program; Linux allows 128 KiB, including the final NUL
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
    """Return a short script that reads a long script from `fd`, closes `fd`, and runs the long
    script.

    The short script closes `fd` before it runs the long script, so that the commands of the long
    script do not inherit `fd`. `eval` parses a script as `bash -c` does, except that the message of
    a syntax error contains `eval:`.
    """
    return b'eval "exec %d<&-; $(</dev/fd/%d)"' % (fd, fd)
