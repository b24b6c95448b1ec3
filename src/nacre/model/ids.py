"""Digests of bytes, keys of sessions, and the check of session names.

The function `digest` returns the same text for the same bytes in every process.
"""

from typing import Final

_MAX_NAME: Final = 100  # maximum length of a session name, in characters


def digest(data: bytes, size: int = 8) -> str:
    # `_blake2` is preferred to `hashlib`, because `hashlib` loads all of OpenSSL: three megabytes.
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b

    return blake2b(data, digest_size=size).hexdigest()


def session_key(contract: str, owner: str, kind: str) -> str:
    """Build the key of a session from its contract (tool dialect), its owner and the kind of its
    shell."""
    return f"{digest(f'{contract} {owner}'.encode())}-{kind}"


def check_session_name(name: str) -> str:
    """Return a valid session name unchanged. Raises ValueError for an invalid session name."""
    if not isinstance(name, str):
        raise ValueError(f"a session's name is text, not {name!r}")
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or name != name.strip():
        raise ValueError(
            f"a session's name has 1 to {_MAX_NAME} printable characters, and no blanks "
            f"around them; {name[:_MAX_NAME]!r} is not possible"
        )
    return name
