"""nacre: every command a run with an id, two clocks. Here: its options and its decisions."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from nacre.caller import Caller
from nacre.contracts.options import Seconds, read_options
from nacre.contracts.shared import Safety, Shared, checked, signed
from nacre.plan import KIB, MIB, Command, Keep, Limits, Plan, Streams
from nacre.prepare.decide import Step
from nacre.prepare.directory import directory
from nacre.prepare.environment import EDITORS, NON_INTERACTIVE, environment, variable_names
from nacre.prepare.links import links
from nacre.prepare.terminal import terminal_needs


class Options(Shared, frozen=True, kw_only=True):
    safety: Safety = ("disk",)
    timeout: Annotated[float, Meta(ge=0, extra={"tighter": "limit"})] = 3600.0  # 0: none
    grace: Seconds = 5.0


class Nacre:
    name = "nacre"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.steps: tuple[Step, ...] = (
            variable_names,
            directory,
            *checked(options),
            *signed(options),
            links(("artifact",)),
            environment(options.environment, {**NON_INTERACTIVE, **EDITORS}, options.allow),
            terminal_needs,
        )

    def plan(self, script: bytes, caller: Caller) -> Plan:
        return Plan(
            command=Command(given=script, script=script, cwd=caller.cwd, env=caller.env),
            streams=Streams.MERGED,
            limits=Limits(timeout=self.options.timeout or None, grace=self.options.grace),
            keep=Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB),
        )


def make(options: Mapping[str, Any]) -> Nacre:
    return Nacre(read_options(options, Options))
