"""Types of the RPC messages, with all fields except `id` and `type`; see docs/guide/rpc.md."""

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from nacre.contracts.pi.user_command import Arguments
from nacre.contracts.provider_formats import Format
from nacre.frontends.run_json import MAX_PART

Message = dict[str, Any]


class BadMessage(Exception):
    """Exception for an RPC message that cannot be carried out; the exception's text says why."""


class EmptyMessage(Struct, frozen=True, kw_only=True):
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


# Fields of each RPC message besides `id` and `type`, by the name of the message.
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "bash": (*Arguments.__struct_encode_fields__, "stream"),
    "abort_bash": Abort.__struct_encode_fields__,
    "call": ToolCall.__struct_encode_fields__,
    "schema": Schema.__struct_encode_fields__,
    "ps": Ps.__struct_encode_fields__,
    "read": Read.__struct_encode_fields__,
    "wait": Wait.__struct_encode_fields__,
    "write": Write.__struct_encode_fields__,
    "kill": Kill.__struct_encode_fields__,
    "ping": (),
}

M = TypeVar("M", bound=EmptyMessage)


def read_message(message: Message, kind: type[M]) -> M:
    """Convert a decoded JSON object to an RPC message of the type `kind`. Raises BadMessage."""
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__) or "nothing more"
        raise BadMessage(f"{error}; besides id and type this message takes {takes}") from None


def remove_unknown_fields(message: Message, name: str) -> str | None:
    """Remove the fields that messages of the type `name` do not have from `message`, and return a
    warning that names the removed fields; return None if there is no such field."""
    known = FIELDS[name]
    unknown = [field for field in message if field not in known]
    for field in unknown:
        del message[field]
    if not unknown:
        return None
    takes = ", ".join(known) or "nothing more"
    return f"ignored: {', '.join(unknown)}; besides id and type, {name} takes {takes}"
