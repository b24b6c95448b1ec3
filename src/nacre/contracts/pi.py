"""pi: env, timeout, cwd, interception, internal URLs, artifacts. Here: what it decides.

Order of decisions: names of variables, leading cd, interception, internal URLs, directory,
environment.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from nacre.caller import Caller
from nacre.contracts.contract import read_options
from nacre.contracts.options import Seconds, Shared, checked, signed
from nacre.plan import KIB, Command, Keep, Limits, Plan, Streams
from nacre.prepare import better_tools, interception
from nacre.prepare.decide import Step
from nacre.prepare.directory import directory
from nacre.prepare.environment import NON_INTERACTIVE, environment, variable_names
from nacre.prepare.interception import Given, Mode, Rule
from nacre.prepare.lift import lift
from nacre.prepare.links import links
from nacre.prepare.prefix import prefixed
from nacre.prepare.terminal import terminal_needs

_DEFAULTS = {rule.id: rule for rule in better_tools.DEFAULTS}


class Options(Shared, frozen=True, kw_only=True):
    intercept: Mode = "off"
    intercept_rules: tuple[str, ...] = tuple(_DEFAULTS)  # which of the rules that there are
    rules: tuple[Given, ...] = ()  # and rules of one's own
    head_tail: bool = False
    async_: bool = msgspec.field(default=False, name="async")
    auto_background: Seconds | None = None
    concurrency: Literal["exclusive", "shared"] = "exclusive"
    timeout: Annotated[float, Meta(ge=1, le=3600)] = 300.0
    timeout_zero: Literal["clamp", "none"] = "clamp"
    grace: Seconds = 5.0
    prefix: str = ""
    minimizer: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.interception()

    def interception(self) -> tuple[Rule, ...]:
        """Every rule that counts. Raises ValueError for one that makes no sense."""
        for name in self.intercept_rules:
            if name not in _DEFAULTS:
                near = get_close_matches(name, _DEFAULTS, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(_DEFAULTS)}"
                raise ValueError(f"there is no interception rule {name!r}; {hint}")
        mine = interception.loaded(self.rules)
        return (*mine, *(_DEFAULTS[name] for name in self.intercept_rules))


class Pi:
    name = "pi"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rules = options.interception()
        self.steps: tuple[Step, ...] = (
            variable_names,
            lift,
            interception.interception(self.rules, options.intercept),
            links(),
            directory,
            *checked(options),
            *signed(options),
            environment(options.environment, NON_INTERACTIVE, options.allow),
            terminal_needs,
            *((prefixed(options.prefix),) if options.prefix else ()),
        )

    def plan(self, script: bytes, caller: Caller) -> Plan:
        return Plan(
            command=Command(given=script, script=_trimmed(script), cwd=caller.cwd, env=caller.env),
            streams=Streams.MERGED,
            limits=Limits(timeout=self.options.timeout, grace=self.options.grace),
            keep=Keep(whole=50 * KIB, head=0, tail=50 * KIB),
        )


def _trimmed(script: bytes) -> bytes:
    """Without blanks around it; one that is escaped is no blank."""
    script = script.lstrip()
    short = script.rstrip()
    backslashes = len(short) - len(short.rstrip(b"\\"))
    return script[: len(short) + 1] if backslashes % 2 else short


def make(options: Mapping[str, Any]) -> Pi:
    return Pi(read_options(options, Options))
