"""Who asks: the directory, the variables and the other tools that a call comes with."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct

from nacre.plan import Chore


class Resolved(Struct, frozen=True, kw_only=True):
    """What an internal URL stands for, and what must be made before it can be used."""

    path: bytes
    chores: tuple[Chore, ...] = ()


# Gets what stands behind scheme://, decoded. Raises LookupError, with a sentence, when it cannot.
Resolver = Callable[[str], Resolved]

_NONE: Mapping[str, Resolver] = MappingProxyType({})


class Caller(Struct, frozen=True, kw_only=True):
    cwd: bytes
    env: dict[bytes, bytes] | None = None  # None: exactly what this process has
    tools: tuple[str, ...] = ()  # what else the caller could use instead of a shell
    resolvers: Mapping[str, Resolver] = _NONE  # of internal URLs, by scheme

    @property
    def home(self) -> bytes | None:
        return self.variable(b"HOME")

    def variable(self, name: bytes) -> bytes | None:
        return (os.environb if self.env is None else self.env).get(name)
