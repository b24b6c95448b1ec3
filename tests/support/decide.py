"""Helpers for tests that check the plan which a contract decides for a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from nacre.contracts import registry
from nacre.model.caller import Caller, Resolver
from nacre.prepare.decide import Decision, decide
from nacre.store.url_resolvers import build_resolvers
from nacre.store.workspace import find_workspace


def decided(
    contract: str,
    script: str,
    *,
    cwd: str | Path = "/",
    env: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
    tools: tuple[str, ...] = (),
    options: Mapping[str, Any] | None = None,
    more_resolvers: Mapping[str, Resolver] | None = None,
    directory: str | None = None,
) -> Decision:
    here = str(cwd).encode()
    caller = Caller(
        cwd=here,
        env=None if env is None else {k.encode(): v.encode() for k, v in env.items()},
        tools=tools,
        resolvers={**build_resolvers(find_workspace(here)), **(more_resolvers or {})},
    )
    checks = registry.build_checks(contract, options or {})
    plan = checks.plan(script.encode(), caller)
    command = msgspec.structs.replace(
        plan.command,
        call_env={k.encode(): v.encode() for k, v in (extra or {}).items()},
        cwd=plan.command.cwd if directory is None else directory.encode(),
        cwd_given=directory is not None,
    )
    return decide(msgspec.structs.replace(plan, command=command), checks.steps, caller)


def script(decision: Decision) -> str:
    assert decision.refusal is None, decision.refusal
    return decision.plan.command.script.decode()
