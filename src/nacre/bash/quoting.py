"""Text as one word of a script."""

import re
from typing import Final

_PLAIN: Final = re.compile(rb"[A-Za-z0-9_@%+=:,./-][A-Za-z0-9_@%+=:,./~^-]*")


def quote(text: bytes) -> bytes:
    """The text so that bash takes it for one word that stands for itself."""
    if _PLAIN.fullmatch(text):
        return text
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
