"""Speaking a dialect: a model's arguments in, a reply in the contract's words out.

Knows no process: a contract makes an ask and reads an answer. `make()` gives a contract to speak,
`checks()` what one would decide about a command; each is imported when it is first used.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from msgspec import Struct

from nacre.contracts.contract import Checks, Contract

DEFAULT = "harness"
EXPLAINED = "nacre"  # what `explain` takes when nobody says
_MODULES = {
    "nacre": "nacre.contracts.nacre",
    "phoenix": "nacre.contracts.phoenix",
    "harness": "nacre.contracts.harness",
    "pi": "nacre.contracts.pi",
}
_SPOKEN = ("phoenix", "harness", "pi")


def names() -> tuple[str, ...]:
    """The contracts that can be spoken."""
    return _SPOKEN


def all_names() -> tuple[str, ...]:
    """Those and the ones whose decisions can be explained."""
    return tuple(_MODULES)


def make(name: str, options: Mapping[str, Any]) -> Contract:
    """The contract of this name. Raises ValueError, with the remedy, for what is unknown."""
    if name in _MODULES and name not in _SPOKEN:
        raise ValueError(
            f"the contract {name!r} cannot be called yet; nacre explain --contract {name} shows "
            f"what it would decide, and {', '.join(_SPOKEN)} can be called"
        )
    contract: Contract = _module(name, _SPOKEN).make(options)
    return contract


def checks(name: str, options: Mapping[str, Any]) -> Checks:
    """What the contract of this name would decide. Raises ValueError like `make`."""
    found: Checks = _module(name, tuple(_MODULES)).make(options)
    return found


def options_of(name: str) -> type[Struct]:
    """What the contract of this name lets one choose. Raises ValueError like `make`."""
    found: type[Struct] = _module(name, tuple(_MODULES)).Options
    return found


def _module(name: str, known: tuple[str, ...]) -> Any:
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no contract {name!r}; there is {', '.join(known)}{hint}")
    return import_module(_MODULES[name])
