"""What the messages of the RPC may hold, besides `id` and `type`; docs/rpc.md."""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from nacre.contracts.providers import Format
from nacre.fronts.told import MOST

Message = dict[str, Any]


class Wrong(Exception):
    """What a message asks cannot be done; the sentence says why."""


class Nothing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing at all; the others have more."""


class ToolCall(Nothing, frozen=True, kw_only=True):
    arguments: Any
    contract: str | None = None
    tool: str = "bash"
    cwd: str | None = None
    options: dict[str, Any] = {}
    tools: tuple[str, ...] = ()
    stream: bool = False


class Schema(Nothing, frozen=True, kw_only=True):
    contract: str | None = None
    format: Format = "anthropic"
    cwd: str | None = None
    options: dict[str, Any] = {}


class Abort(Nothing, frozen=True, kw_only=True):
    target: str | int | float | None = None
    all: bool = False


class Ps(Nothing, frozen=True, kw_only=True):
    all: bool = False
    last: int = 20
    cwd: str | None = None


class OfRun(Nothing, frozen=True, kw_only=True):
    run: str | int
    cwd: str | None = None


class Read(OfRun, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    since: int | None = None
    first: int | None = None
    last: int | None = None
    lines: int | None = None
    most: int = MOST


class Wait(OfRun, frozen=True, kw_only=True):
    timeout: float | None = None


class Write(OfRun, frozen=True, kw_only=True):
    text: str = ""
    eof: bool = False


class Kill(OfRun, frozen=True, kw_only=True):
    signal: str | int | None = None
    grace: float = 5.0


M = TypeVar("M", bound=Nothing)


def read(message: Message, kind: type[M]) -> M:
    """Raises Wrong."""
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__) or "nothing more"
        raise Wrong(f"{error}; besides id and type this takes {takes}") from None
