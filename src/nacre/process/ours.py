"""Settings of the whole process, only for processes that are nacre's own."""

import ctypes
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36


def become_subreaper() -> bool:
    """Have orphans of our commands come to us instead of to init. False where that is refused."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused
