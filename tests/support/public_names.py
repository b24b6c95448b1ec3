"""Tables of all public names: in messages, files and replies, in Python and on the command line.

    python -m tests.support.public_names    writes tests/data/NAME.json, one for each function

`test_public_names` compares these tables with the recorded files. A difference affects users,
stored data or a warden of another version. Regenerate a file only after an intended change, and
mention the change in the CHANGELOG. The files contain no names of modules or of private classes.
"""

import argparse
import enum
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct

import nacre
from nacre import settings
from nacre.contracts import registry
from nacre.contracts.provider_formats import Format
from nacre.frontends.cli import main as cli
from nacre.frontends.rpc import messages
from nacre.frontends.rpc.methods import RpcMethods
from nacre.model.refusals import AnyRefusal
from nacre.shell_state.state import ShellState
from nacre.store import idempotency, journal, session_files, setup_snapshots
from nacre.warden import protocol
from tests.warden.test_protocol import CLIENT, WARDEN

DATA = Path(__file__).parents[1] / "data"
SOURCE = Path(nacre.__file__).parent

# Types that are encoded as one document, by destination. Tagged types inside them get their own
# keys in the table.
ROOTS: dict[str, Any] = {
    "journal, plan, outcome": journal.StartEntry | journal.EndEntry,
    "session ledger": session_files.Ledger,
    "session state": ShellState,
    "set-up snapshot": setup_snapshots.SetupSnapshot,
    "request file": idempotency.Claim,
    "from client": protocol.FromClient,
    "from warden": protocol.FromWarden,
}
# Fields of each RPC message. The message `bash` is missing: it takes the arguments of pi's tool.
MESSAGES: dict[str, type[Struct]] = {
    "abort_bash": messages.Abort,
    "call": messages.ToolCall,
    "kill": messages.Kill,
    "ping": messages.EmptyMessage,
    "ps": messages.Ps,
    "read": messages.Read,
    "schema": messages.Schema,
    "wait": messages.Wait,
    "write": messages.Write,
}


def refusals() -> dict[str, str]:
    """Return the id in replies for the tag of each refusal."""
    return {str(_tag(each)): each.public_id for each in get_args(AnyRefusal)}


def _tag(kind: type[Struct]) -> object:
    return kind.__struct_config__.tag


def wire_names() -> dict[str, Any]:
    """Return the encoded fields of each type in order. The key is the tag of the type, or for an
    untagged type its path in the enclosing type. `?` marks an optional field."""
    found: dict[str, Any] = {}
    for label, root in ROOTS.items():
        _walk(msgspec.inspect.type_info(root), label, found, set())
    return found


def _walk(kind: msgspec.inspect.Type, path: str, found: dict[str, Any], seen: set[type]) -> None:
    match kind:
        case msgspec.inspect.StructType(cls=cls, fields=fields, tag=tag, array_like=array):
            key = path if tag is None else str(tag)
            if cls in seen or key in found:
                return
            seen.add(cls)
            names = [each.encode_name + ("" if each.required else "?") for each in fields]
            found[key] = ["array", *names] if array else names
            for each in fields:
                _walk(each.type, f"{key}.{each.encode_name}", found, seen)
        case msgspec.inspect.EnumType(cls=cls):
            found[path] = {"one of": [each.value for each in cls]}
        case msgspec.inspect.LiteralType(values=values):
            found[path] = {"one of": list(values)}
        case msgspec.inspect.UnionType(types=types):
            tags = [each.tag for each in types if isinstance(each, msgspec.inspect.StructType)]
            if len(tags) > 1:
                found[path] = {"one of": sorted(map(str, tags))}
            for other in types:
                _walk(other, path, found, seen)
        case msgspec.inspect.DictType(key_type=key_type, value_type=value):
            _walk(key_type, path, found, seen)
            _walk(value, path, found, seen)
        case msgspec.inspect.TupleType(item_types=types):
            for other in types:
                _walk(other, path, found, seen)
        case (
            msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item)
        ):
            _walk(item, path, found, seen)
        case msgspec.inspect.Metadata(type=inner):
            _walk(inner, path, found, seen)


def wire_frames() -> dict[str, list[str]]:
    """Return encoded frames as hexadecimal digits; `tests.warden.test_protocol` has the values."""
    return {
        "from client": [protocol.encode_frame(each).hex() for each in CLIENT],
        "from warden": [protocol.encode_frame(each).hex() for each in WARDEN],
    }


def schemas() -> dict[str, Any]:
    """Return the output of `nacre schema` for each contract and format, with reply schemas."""
    made: dict[str, Any] = {}
    for name in registry.contract_names():
        with nacre.Tool(name, cwd="/usr", env={}) as tool:
            made[name] = {each: tool.specs(each) for each in get_args(Format)}
    with nacre.Tool("pi", cwd="/usr", env={}, options={"async": True}) as tool:
        made["pi, async"] = {each: tool.specs(each) for each in get_args(Format)}
    return made


def options() -> dict[str, Any]:
    """Return the tables and keys of the settings files. The keys of a contract are its options."""
    shapes: dict[str, type[Struct]] = {"store": settings.StoreSettings}
    shapes |= {name: registry.options_type(name) for name in registry.contract_names()}
    return {
        name: {
            each.encode_name: msgspec.to_builtins(each.default)
            for each in msgspec.structs.fields(shape)
        }
        for name, shape in shapes.items()
    }


def command_line() -> dict[str, Any]:
    """Return the options and arguments of each command, with the values that they take."""
    (commands,) = (
        each for each in cli.build_parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    made = {name: _arguments(parser) for name, parser in commands.choices.items()}
    return {"": _arguments(cli.build_parser()), **made}


def _arguments(parser: argparse.ArgumentParser) -> dict[str, Any]:
    return {
        " ".join(each.option_strings) or str(each.metavar or each.dest): {
            name: value
            for name, value in (
                ("takes", each.nargs if each.nargs is not None else each.metavar),
                ("choices", list(each.choices) if each.choices else None),
                ("default", each.default if each.default != argparse.SUPPRESS else None),
            )
            if value is not None
        }
        for each in parser._actions
    }


def rpc() -> dict[str, Any]:
    """Return the fields of each message type except `id` and `type`. `?` marks optional fields."""
    names = RpcMethods(lambda _: nacre.Tool(), None).names  # type: ignore[arg-type]
    return {
        name: [
            each.encode_name + ("" if each.required else "?")
            for each in msgspec.structs.fields(MESSAGES[name])
        ]
        if name in MESSAGES
        else None
        for name in names
    }


def environment() -> list[str]:
    """Return the environment variables that the source names, of nacre and of other programs."""
    quoted = re.compile(r'b?"((?:NACRE|XDG|PI)_[A-Z_]+|NO_COLOR|TMPDIR)"')
    return sorted({name for path in SOURCE.rglob("*.py") for name in _all(quoted, path)})


def _all(pattern: re.Pattern[str], path: Path) -> Iterator[str]:
    yield from pattern.findall(path.read_text())


def python() -> dict[str, Any]:
    """Return the public attributes of each public name."""
    return {name: _public(getattr(nacre, name)) for name in sorted(nacre.__all__)}


def _public(value: Any) -> Any:
    if not isinstance(value, type):
        return _signature(value) if inspect.isroutine(value) else [*map(_name, get_args(value))]
    if issubclass(value, enum.Enum):
        return {each.name: each.value for each in value}
    made_by_users = not issubclass(value, Exception | nacre.RunHandle | nacre.SessionHandle)
    return {
        **({"()": _signature(value)} if made_by_users else {}),
        **{
            name: _signature(each) if inspect.isfunction(each) else "attribute"
            for name, each in sorted(inspect.getmembers(value))
            if not name.startswith("_") and not hasattr(Exception, name)
        },
    }


def _name(value: type) -> str:
    """Return the public name of a class."""
    (name,) = (name for name in nacre.__all__ if getattr(nacre, name) is value)
    return name


def _signature(value: Callable[..., Any]) -> list[str]:
    """Return the parameters in order. `=` marks a default value. Parameters after `*` are
    keyword-only."""
    made: list[str] = []
    named = False
    for each in inspect.signature(value).parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not named:
            named = True
            made.append("*")
        if each.kind is each.VAR_KEYWORD:
            (options,) = get_args(each.annotation)
            made += [f"{name}=" for name in options.__annotations__]
        else:
            made.append(each.name + ("" if each.default is each.empty else "="))
    return made


TABLES: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        refusals,
        wire_names,
        wire_frames,
        schemas,
        options,
        command_line,
        rpc,
        environment,
        python,
    )
}


def main() -> None:
    os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
    for name, table in TABLES.items():
        (DATA / f"{name}.json").write_text(_text(table()))


def _text(table: Any) -> str:
    """Return JSON text with one line for each entry; long entries are indented over more lines."""
    if not isinstance(table, dict):
        return json.dumps(table) + "\n"
    rows = (f"{json.dumps(key)}: {_row(value)}" for key, value in table.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _row(value: Any) -> str:
    row = json.dumps(value, ensure_ascii=False)
    return row if len(row) < 2000 else json.dumps(value, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
