"""Whose options count, each with where it came from.

    what the host or the command line says
    > nacre.toml of the workspace > the user's config.toml > the contract's own

A workspace may be anybody's, so its file may only tighten: shorter limits, more rules, fewer
variables. What would loosen something is an error, and belongs into the user's own file.
"""

import errno
import os
import re
import stat
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from nacre.contracts import registry
from nacre.contracts.option_reader import read_options, struct_fields
from nacre.model.plan import GIB, KIB, MIB, AtLimit, Spill
from nacre.store.cleanup import StoreLimits
from nacre.store.workspace import find_workspace
from nacre.text.similar_names import did_you_mean

DEFAULT: Final = "default"
GIVEN: Final = "given"
_LARGEST: Final = MIB


class SettingsError(ValueError):
    """A file of settings that cannot be used: it names the file, the line and the remedy."""


class StoreSettings(Struct, frozen=True, kw_only=True):
    """The table [store]: how much is remembered of past runs."""

    days: Annotated[float, Meta(gt=0)] = 14.0
    size: str | int = "10GB"
    run: str | int = "4GB"  # of one run's output
    full: Literal["close", "stop"] = "close"  # what a command meets that writes more


class Setting(Struct, frozen=True, kw_only=True):
    value: Any
    origin: str = DEFAULT  # or `given`, or a file and its line


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that is in force for one contract in one place."""

    options: dict[str, Setting]
    store_limits: StoreLimits
    spill: Spill | None  # where it is not the usual one
    store: dict[str, Setting]  # what is said about it

    @property
    def option_values(self) -> dict[str, Any]:
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
            data = _read_file(path)
        except ValueError:  # a NUL in the path
            return
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            if missing or not os.access(os.path.dirname(path), os.X_OK):
                return  # where nobody can enter, nothing can run either
            raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
        self.tables = self._parsed(data)

    def _parsed(self, data: bytes) -> dict[str, Any]:
        import tomllib  # only who has a file pays for it

        try:
            self.text = data.decode("utf-8-sig")
            return tomllib.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"{self.path} is no TOML: {error}") from None

    def table(self, name: str, shape: type[Struct]) -> dict[str, Setting]:
        """One table, checked."""
        table = self.tables.get(name, {})
        if not isinstance(table, dict):
            raise self.error(f"{name} must be a table; write [{name}] above its keys", "", name)
        try:
            read_options(table, shape, strict=True)
        except ValueError as error:
            problem, key = _find_wrong_key(table, shape) or (str(error), "")
            raise self.error(f"[{name}] {problem}", name, key) from None
        return {
            key: Setting(value=value, origin=self.locate(name, key)) for key, value in table.items()
        }

    def check_names(self, known: tuple[str, ...]) -> None:
        for name in self.tables:
            if name not in known:
                near = did_you_mean(name, known).replace("'", "[", 1).replace("'", "]", 1)
                hint = near or f"there is {', '.join(known)}"
                raise self.error(f"there is no table {name!r}; {hint}", "", name)

    def error(self, problem: str, table: str, key: str) -> SettingsError:
        return SettingsError(f"{self.locate(table, key)}: {problem}")

    def locate(self, table: str, key: str) -> str:
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


def _read_file(path: str) -> bytes:
    """Of a file that may be anybody's: whatever lies there, we do not hang. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        if status.st_size > _LARGEST:
            raise OSError(errno.EFBIG, "it is too large for settings")
        return os.read(fd, _LARGEST)
    finally:
        os.close(fd)


def _find_wrong_key(table: dict[str, Any], shape: type[Struct]) -> tuple[str, str] | None:
    """What is wrong, and with which key, when that is one alone."""
    for key, value in table.items():
        try:
            read_options({key: value}, shape, strict=True)
        except ValueError as error:
            return str(error), key
    return None


def load(contract: str, cwd: bytes, options: Mapping[str, Any]) -> Settings:
    """What is in force for a contract there. Raises ValueError, also SettingsError."""
    mine, theirs = _File(user_file()), _File(workspace_file(cwd))
    for file in (mine, theirs):
        file.check_names((*registry.contract_names(), "store"))
    if "store" in theirs.tables:
        problem = f"the store is not this workspace's alone; set it in {mine.path}"
        raise theirs.error(problem, "", "store")
    written = mine.tables.keys() | theirs.tables.keys()
    for other in registry.contract_names():  # what is wrong is wrong, whoever is called
        if other != contract and other in written:
            _merge_files(other, mine, theirs)
    merged = _merge_files(contract, mine, theirs)
    merged |= {key: Setting(value=value, origin=GIVEN) for key, value in options.items()}
    store = {
        field.encode_name: Setting(value=field.default) for field in struct_fields(StoreSettings)
    }
    chosen = _store(mine)
    return Settings(
        options=merged,
        store_limits=StoreLimits(days=chosen.days, size=_size(mine, chosen, "size")),
        spill=_spill(mine, chosen),
        store=store | mine.table("store", StoreSettings),
    )


def _merge_files(contract: str, mine: _File, theirs: _File) -> dict[str, Setting]:
    """What the files say about a contract, over what it has by itself."""
    shape = registry.options_type(contract)
    usual = {field.encode_name: Setting(value=field.default) for field in struct_fields(shape)}
    merged = usual | mine.table(contract, shape)
    for key, wanted in theirs.table(contract, shape).items():
        way = _TIGHTEN.get(find_tightening(_type_of(shape, key)) or "", _Tightening())
        values = [_read(shape, key, each.value) for each in (usual[key], merged[key], wanted)]
        if not any(way.allows(each, values[2]) for each in values[:2]):
            now = msgspec.json.encode(values[1]).decode()
            problem = f"{key} {way.may} (it is {now}); set it in {user_file()}"
            raise theirs.error(f"[{contract}] {problem}", contract, key)
        tightest = way.tightest(values[1], values[2])
        if tightest != values[1]:
            merged[key] = Setting(value=tightest, origin=wanted.origin)
    return merged


def _read(shape: type[Struct], key: str, value: Any) -> Any:
    """A value that was checked already, as the contract has it."""
    return msgspec.convert(msgspec.to_builtins(value), _type_of(shape, key))


def _type_of(shape: type[Struct], key: str) -> Any:
    return next(each.type for each in struct_fields(shape) if each.encode_name == key)


def user_file() -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return f"{base}/nacre/config.toml"


def workspace_file(cwd: bytes) -> str:
    return f"{os.fsdecode(find_workspace(cwd))}/nacre.toml"


def _store(file: _File) -> StoreSettings:
    table = file.table("store", StoreSettings)
    return read_options({key: each.value for key, each in table.items()}, StoreSettings)


def _spill(file: _File, store: StoreSettings) -> Spill | None:
    if (store.run, store.full) == ("4GB", "close"):
        return None
    return Spill(limit=_size(file, store, "run"), then=AtLimit(store.full))


_UNITS: Final = {"": 1, "B": 1, "KB": KIB, "MB": MIB, "GB": GIB, "TB": 1024 * GIB}


def _size(file: _File, store: StoreSettings, key: str) -> int:
    given = getattr(store, key)
    if isinstance(given, int):
        return given
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", given.upper())
    if found is None or found[2] not in _UNITS:
        problem = f"{key} {given!r} is no size; write it like 500MB or 10GB"
        raise file.error(f"[store] {problem}", "store", key)
    return int(float(found[1]) * _UNITS[found[2]])


def find_tightening(wanted: Any) -> str | None:
    """How an option can be made tighter, from its declaration."""
    for each in (wanted, *get_args(wanted)):
        if get_origin(each) is Annotated:
            for meta in get_args(each)[1:]:
                if isinstance(meta, Meta) and meta.extra is not None:
                    way: str | None = meta.extra.get("tighter")
                    return way
    return None


class _Tightening:
    """How a workspace may change an option: not at all."""

    may = "cannot be set by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        del old, new
        return False

    def tightest(self, old: Any, new: Any) -> Any:
        """Of two values."""
        return new if self.allows(old, new) else old


class _Less(_Tightening):
    may = "can only be lowered by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        return old is None or (new is not None and new <= old)


class _Limit(_Tightening):
    """A limit of which 0 is none."""

    may = "can only be lowered by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        return bool(new) and (not old or new <= old)


class _More(_Tightening):
    may = "can only be added to by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        """Packs and rules that are taken away begin with a dash."""
        del old
        return bool(new) and not any(isinstance(each, str) and each[:1] == "-" for each in new)

    def tightest(self, old: Any, new: Any) -> Any:
        return (*old, *(each for each in new if each not in old))


class _Words(_More):
    """Rules: a pattern of somebody else's could take for ever."""

    may = "can only be added to by a workspace, and by words, not by a pattern"

    def allows(self, old: Any, new: Any) -> bool:
        return super().allows(old, new) and all(each.pattern is None for each in new)


class _Later(_Tightening):
    """Choices, from the loosest to the strictest."""

    may = "can only be made stricter by a workspace"
    _ORDER = ("inherit", "filtered", "minimal", "off", "warn", "block")

    def allows(self, old: Any, new: Any) -> bool:
        return self._ORDER.index(new) >= self._ORDER.index(old)


class _Off(_Tightening):
    may = "can only be switched off by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        return bool(old) >= bool(new)


_TIGHTEN: Final[dict[str, _Tightening]] = {
    "less": _Less(),
    "limit": _Limit(),
    "more": _More(),
    "words": _Words(),
    "later": _Later(),
    "off": _Off(),
}
