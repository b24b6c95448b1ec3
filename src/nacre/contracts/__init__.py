"""Speaking a dialect: a model's arguments in, a reply in the contract's words out.

Knows no process: a contract makes an ask and reads an answer. `names()` and `make()` are how a
tool finds its contract; each is imported when it is first used.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from nacre.contracts.contract import Contract

DEFAULT = "harness"
_MODULES = {"harness": "nacre.contracts.harness"}


def names() -> tuple[str, ...]:
    return tuple(_MODULES)


def make(name: str, options: Mapping[str, Any]) -> Contract:
    """The contract of this name. Raises ValueError, with the remedy, for what is unknown."""
    if name not in _MODULES:
        near = get_close_matches(name, _MODULES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no contract {name!r}; there is {', '.join(_MODULES)}{hint}")
    contract: Contract = import_module(_MODULES[name]).make(options)
    return contract
