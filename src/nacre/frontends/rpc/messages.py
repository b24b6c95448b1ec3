"""Types of the RPC messages, with all fields except `id` and `type`; see docs/guide/rpc.md."""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from nacre.contracts.provider_formats import Format
from nacre.frontends.run_json import MAX_PART

Message = dict[str, Any]


class BadMessage(Exception):
    """Exception for an RPC message that cannot be carried out; the exception's text says why."""


class EmptyMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """RPC message without fields of its own; base class of all other RPC messages."""


class ToolCall(EmptyMessage, frozen=True, kw_only=True):
    arguments: Any
    contract: str | None = None
    tool: str = "bash"
    cwd: str | None = None
    options: dict[str, Any] = {}
    tools: tuple[str, ...] = ()
    stream: bool = False


class Schema(EmptyMessage, frozen=True, kw_only=True):
    contract: str | None = None
    format: Format = "anthropic"
    cwd: str | None = None
    options: dict[str, Any] = {}


class Abort(EmptyMessage, frozen=True, kw_only=True):
    target: str | int | float | None = None
    all: bool = False


class Ps(EmptyMessage, frozen=True, kw_only=True):
    all: bool = False
    last: int = 20
    cwd: str | None = None


class RunMessage(EmptyMessage, frozen=True, kw_only=True):
    run: str | int
    cwd: str | None = None


class Read(RunMessage, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    since: int | None = None
    first: int | None = None
    last: int | None = None
    lines: int | None = None
    most: int = MAX_PART


class Wait(RunMessage, frozen=True, kw_only=True):
    timeout: float | None = None


class Write(RunMessage, frozen=True, kw_only=True):
    text: str = ""
    eof: bool = False


class Kill(RunMessage, frozen=True, kw_only=True):
    signal: str | int | None = None
    grace: float = 5.0


M = TypeVar("M", bound=EmptyMessage)


def read_message(message: Message, kind: type[M]) -> M:
    """Convert a decoded JSON object to an RPC message of the type `kind`. Raises BadMessage."""
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__) or "nothing more"
        raise BadMessage(f"{error}; besides id and type this message takes {takes}") from None
