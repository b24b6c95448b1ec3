"""Settings in force for a contract (a dialect of the tool), each with the place where it was set.

    options from the host or the command line
    > nacre.toml of the workspace > the user's config.toml > the contract's defaults

A workspace may come from an untrusted author, so its `nacre.toml` may only tighten options: shorter
limits, more rules, fewer variables. A workspace's `nacre.toml` that would loosen an option, for
example by raising a limit, is rejected with an error. Values that loosen an option belong in the
user's own `config.toml`.
"""

import errno
import os
import re
import stat
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from nacre.contracts import registry
from nacre.contracts.option_reader import (
    find_mark,
    read_options,
    replace_switch,
    struct_fields,
)
from nacre.model.plan import GIB, KIB, MIB, AtLimit, Spill
from nacre.store.cleanup import StoreLimits
from nacre.store.workspace import find_workspace
from nacre.text.similar_names import did_you_mean

DEFAULT: Final = "default"
GIVEN: Final = "given"
_LARGEST: Final = MIB


class SettingsError(ValueError):
    """Unusable settings file; the message names the file, the line and the remedy."""


class StoreSettings(Struct, frozen=True, kw_only=True):
    """Table `[store]` of a settings file: how much of past runs is kept, and for how long."""

    days: Annotated[float, Meta(gt=0)] = 14.0
    size: str | int = "10GB"
    run: str | int = "4GB"  # maximum size of one run's output on disk
    # What to do when a run's output exceeds its maximum size: close the output pipe, or stop the
    # run.
    full: Literal["close", "stop"] = "close"


class Setting(Struct, frozen=True, kw_only=True):
    value: Any
    origin: str = DEFAULT  # origin of the value: `default`, `given` by the caller, or FILE:LINE


class Settings(Struct, frozen=True, kw_only=True):
    """Settings in force for one contract (dialect of the tool) in one directory."""

    options: dict[str, Setting]
    store_limits: StoreLimits
    # disk limit of a run's output, set in the table [store]; None: the contract's own limit
    spill: Spill | None
    store: dict[str, Setting]  # values of the table [store], each with its origin

    @property
    def option_values(self) -> dict[str, Any]:
        """Options of the contract that were set explicitly, without those that have their default
        value."""
        return {
            name: each.value for name, each in self.options.items() if each.origin is not DEFAULT
        }


class _File:
    """One settings file, which may be missing."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.text = ""
        self.tables: dict[str, Any] = {}
        if not path.startswith("/"):
            return  # the path is not absolute, because the user has no home directory
        try:
            data = _read_file(path)
        except ValueError:  # the path contains a NUL byte
            return
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            if missing or not os.access(os.path.dirname(path), os.X_OK):
                # A settings file whose directory this process may not enter counts as missing,
                # because no command can run in a directory that cannot be entered.
                return
            raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
        self.tables = self._parsed(data)

    def _parsed(self, data: bytes) -> dict[str, Any]:
        import tomllib  # lazy import: needed only if a settings file exists

        try:
            self.text = data.decode("utf-8-sig")
            return tomllib.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"{self.path} is not TOML: {error}") from None

    def table(self, name: str, shape: type[Struct]) -> dict[str, Setting]:
        """Return one table of the settings file after checking its keys and values. Raises
        SettingsError."""
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
                hint = near or f"choose from {', '.join(known)}"
                raise self.error(f"there is no table {name!r}; {hint}", "", name)

    def error(self, problem: str, table: str, key: str) -> SettingsError:
        return SettingsError(f"{self.locate(table, key)}: {problem}")

    def locate(self, table: str, key: str) -> str:
        """Return `FILE:LINE` of a key in the settings file, or only the file if the line is not
        found."""
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
    """Return the content of a settings file. Raises OSError.

    An untrusted author may have put a FIFO or a device at the path of the settings file, so the
    read never blocks.
    """
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
    """Return the error message and the name of the first key whose value alone causes an error;
    return None if there is no such key."""
    for key, value in table.items():
        try:
            read_options({key: value}, shape, strict=True)
        except ValueError as error:
            return str(error), key
    return None


def load(contract: str, cwd: bytes, options: Mapping[str, Any]) -> Settings:
    """Return the settings in force for a contract (dialect of the tool) in the directory `cwd`.
    Raises ValueError, SettingsError."""
    mine, theirs = _File(user_file()), _File(workspace_file(cwd))
    for file in (mine, theirs):
        file.check_names((*registry.contract_names(), "store"))
    if "store" in theirs.tables:
        problem = f"the store is shared by all workspaces; set it in {mine.path}"
        raise theirs.error(problem, "", "store")
    written = mine.tables.keys() | theirs.tables.keys()
    # Errors in the settings of contracts other than the requested one are reported, too.
    for other in registry.contract_names():
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
    """Return the options of a contract, merged from its defaults and the settings files.

    The user's settings file overrides the contract's defaults; the workspace's settings file may
    only tighten the resulting options. Raises SettingsError.
    """
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
    """Convert the checked value of an option to the type that the contract declares for the
    option."""
    wanted = _type_of(shape, key)
    return msgspec.convert(replace_switch(msgspec.to_builtins(value), wanted), wanted)


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
        problem = f"{key} {given!r} is not a size; write it like 500MB or 10GB"
        raise file.error(f"[store] {problem}", "store", key)
    return int(float(found[1]) * _UNITS[found[2]])


def find_tightening(wanted: Any) -> str | None:
    """Return the name of the rule by which a workspace may tighten an option, as given in the
    option's type annotation, or None."""
    way: str | None = find_mark(wanted, "tighter")
    return way


class _Tightening:
    """Rule for how a workspace's settings file may change an option; this base class allows no
    change."""

    may = "cannot be set by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        del old, new
        return False

    def tightest(self, old: Any, new: Any) -> Any:
        """Return the stricter one of an option's old and new value."""
        return new if self.allows(old, new) else old


class _Less(_Tightening):
    may = "can only be lowered by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        return old is None or (new is not None and new <= old)


class _Limit(_Tightening):
    """Rule that lets a workspace only lower a numeric limit; 0 means no limit."""

    may = "can only be lowered by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        return bool(new) and (not old or new <= old)


class _More(_Tightening):
    may = "can only be added to by a workspace"

    def allows(self, old: Any, new: Any) -> bool:
        """Return whether the list in a workspace's settings file only adds entries to the list that
        an option already has.

        A workspace's list may have no entry with a leading dash, because an entry with a leading
        dash removes a rule or a pack of rules.
        """
        del old
        return bool(new) and not any(isinstance(each, str) and each[:1] == "-" for each in new)

    def tightest(self, old: Any, new: Any) -> Any:
        return (*old, *(each for each in new if each not in old))


class _Words(_More):
    """Rule for how a workspace may change the list of rules that intercept commands.

    A rule that a workspace adds may contain words to match, but no regular expression, because
    matching an untrusted regular expression could take forever.
    """

    may = "can only be added to by a workspace, and by words, not by a pattern"

    def allows(self, old: Any, new: Any) -> bool:
        return super().allows(old, new) and all(each.pattern is None for each in new)


class _Later(_Tightening):
    """Rule that lets a workspace only choose a stricter one of an option's fixed values, which are
    ordered from the loosest to the strictest."""

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
