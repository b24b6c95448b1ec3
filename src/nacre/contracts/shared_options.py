"""Options that several contracts share, and the steps that they choose."""

from typing import Annotated

from msgspec import Meta, Struct

from nacre.contracts.arguments import bad_arguments, read_bytes
from nacre.contracts.option_reader import LATER, MORE, OFF
from nacre.model.caller import Caller
from nacre.prepare.decide import Step
from nacre.prepare.environment import Policy
from nacre.prepare.git_trailers import trailer_step
from nacre.prepare.leading_cd import resolve_from_caller
from nacre.prepare.safety.rule_selection import select_rules
from nacre.prepare.safety.step import safety_step

Safety = Annotated[tuple[str, ...], Meta(extra=MORE)]


class SharedOptions(Struct, frozen=True, kw_only=True):
    """What phoenix, pi and nacre let one choose; each has defaults of its own."""

    safety: Safety = ()  # packs and rule ids; -id takes one away
    environment: Annotated[Policy, Meta(extra=LATER)] = "filtered"
    allow: tuple[str, ...] = ()  # variables that are never dropped
    coauthor: Annotated[bool, Meta(extra=OFF)] = False
    trailer: str = ""

    def __post_init__(self) -> None:
        select_rules(self.safety)
        if self.coauthor and not _is_trailer(self.trailer):
            raise ValueError(
                f"coauthor is on, so trailer must be like 'Co-authored-by: Name <mail>', "
                f"not {self.trailer!r}"
            )


def _is_trailer(text: str) -> bool:
    key, colon, value = text.partition(": ")
    plain = key.replace("-", "").isalnum() and key.isascii()
    odd = set(text) & set("\n'\"\0$`\\")  # it stands in quotes of every kind
    return plain and bool(colon and value.strip()) and not odd


def resolve_cwd(given: str, caller: Caller) -> bytes | None:
    """The directory that a call names, from the caller's; None for a tilde that leads nowhere.
    Raises Refused."""
    if not given.strip():
        raise bad_arguments("cwd is empty; leave it out, or name a directory")
    path = read_bytes(given, "cwd")
    return resolve_from_caller(path, caller, tilde=given == "~" or given.startswith("~/"))


def safety_steps(options: SharedOptions) -> tuple[Step, ...]:
    """The safety step, if any rule was chosen."""
    rules = select_rules(options.safety)
    return (safety_step(rules),) if rules else ()


def trailer_steps(options: SharedOptions) -> tuple[Step, ...]:
    """The co-author step, if it is on."""
    return (trailer_step(options.trailer),) if options.coauthor else ()
