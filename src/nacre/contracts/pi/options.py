"""Options of the `pi` contract."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from nacre.contracts.option_reader import LATER, LESS, MORE, OFF, Seconds
from nacre.contracts.shared_options import SharedOptions
from nacre.prepare import interception, interception_rules
from nacre.prepare.interception import InterceptionRule, Mode, UserRule
from nacre.text.similar_names import did_you_mean

_DEFAULTS: Final = {rule.id: rule for rule in interception_rules.DEFAULT_RULES}
_AUTO_BACKGROUND: Final = 60.0
SHORTEST, LONGEST = 1, 3600  # allowed range of a command's timeout, in seconds


class Options(SharedOptions, frozen=True, kw_only=True):
    intercept: Annotated[Mode, Meta(extra=LATER)] = "off"
    intercept_rules: Annotated[tuple[str, ...], Meta(extra=MORE)] = tuple(_DEFAULTS)
    # Interception rules that the user has written, for commands that another tool does better.
    rules: Annotated[tuple[UserRule, ...], Meta(extra={"tighter": "words"})] = ()
    head_tail: bool = False
    async_: Annotated[bool, Meta(extra=OFF)] = msgspec.field(default=False, name="async")
    # Seconds after which a running call becomes a background job; None: never; true: the seconds
    # of the agent pi.
    auto_background: (
        Annotated[float, Meta(ge=0, extra={**LESS, "true": _AUTO_BACKGROUND})] | None
    ) = None
    max_jobs: Annotated[int, Meta(ge=0, extra=LESS)] = 32  # maximum number of live background jobs
    # Maximum seconds that a call of the tool `job` waits for a job to end.
    poll_wait: Seconds = 30.0
    concurrency: Literal["exclusive", "shared"] = "exclusive"
    timeout: Annotated[float, Meta(ge=SHORTEST, le=LONGEST, extra=LESS)] = 300.0
    timeout_zero: Literal["clamp", "none"] = "clamp"
    grace: Seconds = 5.0
    shell: str = ""  # shell for the commands, which must be compatible with bash; empty: bash
    prefix: str = ""
    # Whether a new session first loads the user's shell set-up (variables, functions, aliases).
    snapshot: Annotated[bool, Meta(extra=OFF)] = True
    minimizer: bool = False
    # Whether a command starts in the directory where the session's previous command ended; False:
    # every command starts in the directory of the tool.
    persist_cwd: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.interception()

    def interception(self) -> tuple[InterceptionRule, ...]:
        """Return the interception rules in effect, with the user's own rules first. Raises
        ValueError for an unknown rule name or an invalid rule."""
        for name in self.intercept_rules:
            if name not in _DEFAULTS:
                hint = did_you_mean(name, _DEFAULTS) or f"choose from {', '.join(_DEFAULTS)}"
                raise ValueError(f"there is no interception rule {name!r}; {hint}")
        mine = interception.load_rules(self.rules)
        return (*mine, *(_DEFAULTS[name] for name in self.intercept_rules))
