"""Short names for long things: the same for the same bytes, in every process."""

from typing import Final

_MAX_NAME: Final = 100  # characters of a session's name


def digest(data: bytes, size: int = 8) -> str:
    # Not through hashlib where it can be had without: that loads all of OpenSSL, three megabytes.
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b

    return blake2b(data, digest_size=size).hexdigest()


def session_key(contract: str, owner: str, kind: str) -> str:
    """Of a session: whose it is, and what kind of shell it has."""
    return f"{digest(f'{contract} {owner}'.encode())}-{kind}"


def check_session_name(name: str) -> str:
    """Raises ValueError for what cannot be one."""
    if not isinstance(name, str):
        raise ValueError(f"a session's name is text, not {name!r}")
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or name != name.strip():
        raise ValueError(
            f"a session's name has 1 to {_MAX_NAME} characters that can be printed, and no "
            f"blanks around it; {name[:_MAX_NAME]!r} has not"
        )
    return name
