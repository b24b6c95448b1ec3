"""Who asks: the directory, the variables and the other tools that a call comes with."""

from msgspec import Struct


class Caller(Struct, frozen=True, kw_only=True):
    cwd: bytes
    env: dict[bytes, bytes] | None = None  # None: exactly what this process has
    tools: tuple[str, ...] = ()  # what else the caller could use instead of a shell
