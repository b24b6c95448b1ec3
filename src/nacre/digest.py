"""Short names for long things: the same for the same bytes, in every process."""


def digest(data: bytes, size: int = 8) -> str:
    # Not through hashlib where it can be had without: that loads all of OpenSSL, three megabytes.
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b

    return blake2b(data, digest_size=size).hexdigest()


def session_key(contract: str, whose: str, kind: str) -> str:
    """Of a session: whose it is, and what kind of shell it has."""
    return f"{digest(f'{contract} {whose}'.encode())}-{kind}"
