"""phoenix: command and mode, ordered output, middle truncation. Here: what it decides.

Order of decisions: arguments, directory, safety, co-author, links, environment.
"""

from collections.abc import Mapping
from typing import Any, Literal

from nacre.caller import Caller
from nacre.contracts.contract import read_options
from nacre.contracts.options import Seconds, Shared, checked, signed
from nacre.plan import KIB, Command, Keep, Limits, Plan, Streams
from nacre.prepare.decide import Step
from nacre.prepare.directory import directory
from nacre.prepare.environment import EDITORS, environment
from nacre.prepare.links import links
from nacre.prepare.terminal import terminal_needs


class Options(Shared, frozen=True, kw_only=True):
    schema: Literal["mode", "booleans"] = "mode"
    safety: tuple[str, ...] = ("disk",)
    coauthor: bool = True
    trailer: str = "Co-authored-by: Phoenix <phoenix@exe.dev>"
    timeout: Seconds = 30.0
    slow_timeout: Seconds = 900.0
    grace: Seconds = 15.0


class Phoenix:
    name = "phoenix"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.steps: tuple[Step, ...] = (
            directory,
            *checked(options),
            *signed(options),
            links(("artifact",)),
            environment(options.environment, EDITORS, options.allow),
            terminal_needs,
        )

    def plan(self, script: bytes, caller: Caller) -> Plan:
        return Plan(
            command=Command(given=script, script=script, cwd=caller.cwd, env=caller.env),
            streams=Streams.MERGED,
            limits=Limits(timeout=self.options.timeout, grace=self.options.grace),
            keep=Keep(whole=128 * KIB, head=4 * KIB, tail=4 * KIB),
        )


def make(options: Mapping[str, Any]) -> Phoenix:
    return Phoenix(read_options(options, Options))
