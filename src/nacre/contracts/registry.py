"""The contracts by name.

`build_contract` gives a contract, `build_checks` the steps by which one decides about a command. A
contract's module is imported when it is first used.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct

from nacre.contracts.contract import Checks, Contract
from nacre.text.similar_names import did_you_mean

DEFAULT = "nacre"
_MODULES = {
    "nacre": "nacre.contracts.nacre.contract",
    "phoenix": "nacre.contracts.phoenix",
    "harness": "nacre.contracts.harness",
    "pi": "nacre.contracts.pi.contract",
}


def contract_names() -> tuple[str, ...]:
    return tuple(_MODULES)


def build_contract(name: str, options: Mapping[str, Any]) -> Contract:
    """The contract of this name. Raises ValueError, with the remedy, for what is unknown."""
    contract: Contract = _contract_module(name).make(options)
    return contract


def build_checks(name: str, options: Mapping[str, Any]) -> Checks:
    """What the contract of this name would decide. Raises ValueError like `make`."""
    found: Checks = _contract_module(name).make(options)
    return found


def options_type(name: str) -> type[Struct]:
    """What the contract of this name lets one choose. Raises ValueError like `make`."""
    found: type[Struct] = _contract_module(name).Options
    return found


def _contract_module(name: str) -> Any:
    known = contract_names()
    if name not in known:
        there = f"there is no contract {name!r}; there is {', '.join(known)}"
        raise ValueError(f"{there}; {did_you_mean(name, known)}".rstrip("; "))
    return import_module(_MODULES[name])
