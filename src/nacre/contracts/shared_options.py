"""Options that several contracts (tool dialects) share, and the preparation steps, such as safety
checks, that these options add to a call."""

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
    """Options that the contracts `phoenix`, `pi` and `nacre` share; each of these contracts (tool
    dialects) has its own defaults."""

    # Selected safety rules: names of rule packs and ids of rules; `-id` removes a rule.
    safety: Safety = ()
    environment: Annotated[Policy, Meta(extra=LATER)] = "filtered"
    allow: tuple[str, ...] = ()  # names of environment variables that commands always get
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
    odd = set(text) & set("\n'\"\0$`\\")  # characters that are unsafe in single or double quotes
    return plain and bool(colon and value.strip()) and not odd


def resolve_cwd(given: str, caller: Caller) -> bytes | None:
    """Return the directory in a call's argument `cwd`, resolved from the caller's directory. Return
    None if the path starts with a tilde and the home directory is unknown. Raises Refused for an
    empty or invalid path."""
    if not given.strip():
        raise bad_arguments("cwd is empty; leave it out, or name a directory")
    path = read_bytes(given, "cwd")
    return resolve_from_caller(path, caller, tilde=given == "~" or given.startswith("~/"))


def safety_steps(options: SharedOptions) -> tuple[Step, ...]:
    """Return the step that checks a command against the selected safety rules; no step if no rule
    is selected."""
    rules = select_rules(options.safety)
    return (safety_step(rules),) if rules else ()


def trailer_steps(options: SharedOptions) -> tuple[Step, ...]:
    """Return the step that adds a co-author trailer to git commits; no step if the option
    `coauthor` is off."""
    return (trailer_step(options.trailer),) if options.coauthor else ()
