"""What a command reads: its stdin, and a script that is too long for an argument.

Both are sealed memory files: no writer to feed, nothing on disk, an end of file by nature.
"""

import fcntl
import os
from typing import Final

# One argument may have 128 KiB on Linux, its final NUL included.
LONGEST_ARGUMENT: Final = 128 * 1024 - 1
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def create_memfd(name: str, content: bytes) -> int:
    """A sealed file in memory, read from its start."""
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
    """A short script that runs the one in `fd`, and does not leave `fd` to its children.

    `eval` reads a script as `bash -c` does; only a syntax error says `eval:` in its message.
    """
    return b'eval "exec %d<&-; $(</dev/fd/%d)"' % (fd, fd)
