"""Quoting of arbitrary text as one word of a bash script."""

import re
from typing import Final

_PLAIN: Final = re.compile(rb"[A-Za-z0-9_@%+=:,./-][A-Za-z0-9_@%+=:,./~^-]*")


def quote(text: bytes) -> bytes:
    """Return the text in a form that bash reads as one literal word."""
    if _PLAIN.fullmatch(text):
        return text
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
