"""Finding a contract (tool dialect) by its name.

`build_contract` returns a whole contract; `build_checks` returns only the part of a contract that
checks a command before it runs. A contract's module is imported when the contract is first used.
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
    """Build the contract with the given name and options. Raises ValueError for an unknown contract
    name or a bad option."""
    contract: Contract = _contract_module(name).make(options)
    return contract


def build_checks(name: str, options: Mapping[str, Any]) -> Checks:
    """Return the part of a contract that decides, before a command runs, whether and how the
    command runs. Raises ValueError for an unknown contract name or a bad option."""
    found: Checks = _contract_module(name).make(options)
    return found


def options_type(name: str) -> type[Struct]:
    """Return the struct type of a contract's options. Raises ValueError for an unknown contract
    name."""
    found: type[Struct] = _contract_module(name).Options
    return found


def _contract_module(name: str) -> Any:
    known = contract_names()
    if name not in known:
        there = f"there is no contract {name!r}; contracts: {', '.join(known)}"
        raise ValueError(f"{there}; {did_you_mean(name, known)}".rstrip("; "))
    return import_module(_MODULES[name])
