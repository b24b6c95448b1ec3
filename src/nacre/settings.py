"""Whose options count, each with where it came from.

    what the host or the command line says
    > nacre.toml of the workspace > the user's config.toml > the contract's own

A workspace may be anybody's, so its file may only tighten: shorter limits, more rules, fewer
variables. What would loosen something is an error, and belongs into the user's own file.
"""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from nacre import contracts
from nacre.contracts.options import read_options
from nacre.plan import GIB, KIB, MIB
from nacre.store.links import workspace
from nacre.store.sweep import Bounds
from nacre.text import decode

DEFAULT: Final = "default"
GIVEN: Final = "given"


class SettingsError(ValueError):
    """A file of settings that cannot be used: it names the file, the line and the remedy."""


class Store(Struct, frozen=True, kw_only=True):
    """The table [store]: how much is remembered of past runs."""

    days: Annotated[float, Meta(gt=0)] = 14.0
    size: str | int = "10GB"


class Setting(Struct, frozen=True, kw_only=True):
    value: Any
    origin: str = DEFAULT  # or `given`, or a file and its line


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that is in force for one contract in one place."""

    options: dict[str, Setting]
    bounds: Bounds

    @property
    def chosen(self) -> dict[str, Any]:
        """What the contract is made with."""
        return {
            name: each.value for name, each in self.options.items() if each.origin is not DEFAULT
        }


class _File:
    """One file of settings, if it is there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.text = ""
        self.tables: dict[str, Any] = {}
        if not path.startswith("/"):
            return  # whoever has no home has no file
        try:
            with open(path, "rb") as file:
                data = file.read()
        except ValueError:  # a NUL in the path
            return
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                return
            raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
        self.tables = self._parsed(data)

    def _parsed(self, data: bytes) -> dict[str, Any]:
        import tomllib  # only who has a file pays for it

        try:
            self.text = data.decode()
            return tomllib.loads(self.text)
        except ValueError as error:
            raise SettingsError(f"{self.path} is no TOML: {error}") from None

    def table(self, name: str, shape: type[Struct]) -> dict[str, Setting]:
        """One table, checked."""
        table = self.tables.get(name, {})
        if not isinstance(table, dict):
            raise self.wrong(f"{name} must be a table; write [{name}] above its keys", "", name)
        try:
            read_options(table, shape)
        except ValueError as error:
            problem, key = _culprit(table, shape) or (str(error), "")
            raise self.wrong(f"[{name}] {problem}", name, key) from None
        return {
            key: Setting(value=value, origin=self.at(name, key)) for key, value in table.items()
        }

    def check_names(self, known: tuple[str, ...]) -> None:
        for name in self.tables:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"did you mean [{near[0]}]?" if near else f"there is {', '.join(known)}"
                raise self.wrong(f"there is no table {name!r}; {hint}", "", name)

    def wrong(self, problem: str, table: str, key: str) -> SettingsError:
        return SettingsError(f"{self.at(table, key)}: {problem}")

    def at(self, table: str, key: str) -> str:
        """The file and, as far as it can be told, the line of a key."""
        current = ""
        name = re.escape(key)
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\s*\[+\s*([^\]\s]+)\s*\]", line):
                current = header[1].strip("\"'")
                if not table and current.partition(".")[0] == key:
                    return f"{self.path}:{number}"
            elif (current == table and re.match(rf"\s*[\"']?{name}[\"']?\s*[.=]", line)) or (
                not current and table and re.match(rf"\s*{table}\s*\.\s*{name}\b", line)
            ):
                return f"{self.path}:{number}"
        return self.path


def _culprit(table: dict[str, Any], shape: type[Struct]) -> tuple[str, str] | None:
    """What is wrong, and with which key, when that is one alone."""
    for key, value in table.items():
        try:
            read_options({key: value}, shape)
        except ValueError as error:
            return str(error), key
    return None


def load(contract: str, cwd: bytes, options: Mapping[str, Any]) -> Settings:
    """What is in force for a contract there. Raises ValueError, also SettingsError."""
    shape = contracts.options_of(contract)
    mine, theirs = _File(user_file()), _File(workspace_file(cwd))
    for file in (mine, theirs):
        file.check_names((*contracts.all_names(), "store"))
    made = {
        field.encode_name: Setting(value=field.default) for field in msgspec.structs.fields(shape)
    }
    made |= mine.table(contract, shape)
    for key, tighter in theirs.table(contract, shape).items():
        _check_tighter(theirs, contract, key, shape, made[key].value, tighter.value)
        made[key] = tighter
    read_options(options, shape)
    made |= {key: Setting(value=value, origin=GIVEN) for key, value in options.items()}
    if "store" in theirs.tables:
        problem = f"the store is not this workspace's alone; set it in {mine.path}"
        raise theirs.wrong(problem, "", "store")
    return Settings(options=made, bounds=_bounds(mine))


def user_file() -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return f"{base}/nacre/config.toml"


def workspace_file(cwd: bytes) -> str:
    return f"{os.fsdecode(workspace(cwd))}/nacre.toml"


def _bounds(file: _File) -> Bounds:
    table = file.table("store", Store)
    store = read_options({key: each.value for key, each in table.items()}, Store)
    try:
        return Bounds(days=store.days, size=_size(store.size))
    except ValueError as error:
        raise file.wrong(f"[store] {error}", "store", "size") from None


_UNITS: Final = {"": 1, "B": 1, "KB": KIB, "MB": MIB, "GB": GIB, "TB": 1024 * GIB}


def _size(given: str | int) -> int:
    if isinstance(given, int):
        return given
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", given.upper())
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"size {given!r} is no size; write it like 500MB or 10GB")
    return int(float(found[1]) * _UNITS[found[2]])


def _check_tighter(
    file: _File, contract: str, key: str, shape: type[Struct], before: Any, after: Any
) -> None:
    """Raises SettingsError for what a workspace may not do."""
    types = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    tighter = _TIGHTER.get(way_to_tighten(types[key]) or "")
    old, new = (
        getattr(read_options({key: value}, shape), _attribute(shape, key))
        for value in (before, after)
    )
    if tighter is not None and tighter(old, new, types[key]):
        return
    may = _MAY.get(way_to_tighten(types[key]) or "", "cannot be set by a workspace")
    problem = f"{key} {may} (it is {decode(msgspec.json.encode(old))}); set it in {user_file()}"
    raise file.wrong(f"[{contract}] {problem}", contract, key)


def _attribute(shape: type[Struct], key: str) -> str:
    return next(each.name for each in msgspec.structs.fields(shape) if each.encode_name == key)


def way_to_tighten(wanted: Any) -> str | None:
    """How an option can be made tighter, from its declaration."""
    for each in (wanted, *get_args(wanted)):
        if get_origin(each) is Annotated:
            for meta in get_args(each)[1:]:
                if isinstance(meta, Meta) and meta.extra is not None:
                    way: str | None = meta.extra.get("tighter")
                    return way
    return None


def _less(old: Any, new: Any, wanted: Any) -> bool:
    del wanted
    return old is None or (new is not None and new <= old)


def _more(old: Any, new: Any, wanted: Any) -> bool:
    del wanted
    return set(map(repr, old)) <= set(map(repr, new)) and not any(
        isinstance(each, str) and each.startswith("-") and each not in old for each in new
    )


def _later(old: Any, new: Any, wanted: Any) -> bool:
    choices = get_args(get_args(wanted)[0])
    return choices.index(new) >= choices.index(old)


def _off(old: Any, new: Any, wanted: Any) -> bool:
    del wanted
    return new is False or new == old


_TIGHTER: Final = {"less": _less, "more": _more, "later": _later, "off": _off}
_MAY: Final = {
    "less": "can only be lowered by a workspace",
    "more": "can only be added to by a workspace",
    "later": "can only be made stricter by a workspace",
    "off": "can only be switched off by a workspace",
}
