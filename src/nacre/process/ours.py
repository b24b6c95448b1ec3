"""What takes a system call that Python has no name for.

The subreaper is a setting of the whole process: only for processes that are nacre's own.
"""

import ctypes
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36


def become_subreaper() -> bool:
    """Have orphans of our commands come to us instead of to init. False where that is refused."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused


_LANDLOCK_CREATE_RULESET: Final = 444


def landlock_version() -> int:
    """Which Landlock the kernel offers; 0 or less: none."""
    asked: int = ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return asked
