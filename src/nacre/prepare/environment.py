"""The step `environment`: which variables a command gets.

`inherit` hands on what there is; `filtered` drops what holds a secret, by name or by value, and
what lets others run code in every shell; `minimal` keeps a handful. A contract's own defaults come
next, and over everything the variables that the call itself gives, which are never filtered.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal

import msgspec

from nacre.caller import Caller
from nacre.findings import Dropped
from nacre.plan import Plan
from nacre.prepare.notes import noted
from nacre.refusals import BadVariable
from nacre.text import decode

Policy = Literal["inherit", "filtered", "minimal"]

_NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME: Final = re.compile(
    rb"(?i)(?:ANTHROPIC_|OPENAI_|GEMINI_|AWS_SECRET|PHOENIX_).*"
    rb"|.*_TOKEN|.*_API_KEY|.*_SECRET.*|.*PASSWORD.*|.*_CREDENTIAL.*|.*PRIVATE_KEY.*"
    rb"|.*_(?:APIKEY|ACCESS_KEY|SECRETKEY|MASTER_KEY|PASSWD|PASSPHRASE|PASS|PAT|AUTHTOKEN|AUTH)"
    rb"|MYSQL_PWD"
    rb"|TOKEN|API_?KEY|SECRETS?|SECRET_.*|PASSWD|PASSPHRASE|CREDENTIALS?|.*AUTH_CONFIG"
)
# Every repetition has an end: a value may be long.
_SECRET_VALUE: Final = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY"
    rb"|(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@?#]{0,200}:[^\s@?#]{1,200}@"
    rb"|(?<![\w/.-])(?:"
    rb"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{18,255}"
    rb"|sk-[A-Za-z0-9]{32,255}|sk-(?=[A-Za-z_-]{0,60}\d|ant-)[A-Za-z0-9_-]{20,255}"
    rb"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}"
    rb"|xox[abeoprs]-[A-Za-z0-9-]{10,255}|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])"
    rb"|AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,255}|hf_[A-Za-z0-9]{30,255}"
    rb"|gsk_[A-Za-z0-9]{30,255}|xai-[A-Za-z0-9]{30,255}|AGE-SECRET-KEY-1[0-9A-Z]{20,255}"
    rb"|npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{20,255}|dop_v1_[0-9a-f]{40,255}"
    rb"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"
    rb"|eyJ[A-Za-z0-9_-]{8,1024}\.eyJ[A-Za-z0-9_-]{8,1024}\.[A-Za-z0-9_-]{8,255})"
)
_LOOKED_AT: Final = 64 * 1024  # bytes of a value
_HIJACKS: Final = re.compile(
    rb"BASH_ENV|ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|LD_PRELOAD|LD_AUDIT|DYLD_INSERT_LIBRARIES",
    re.DOTALL,
)
_MINIMAL: Final = re.compile(
    rb"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TERM|TZ|TMPDIR|PWD"
)

# A program that fails, for whoever is asked for a password or a text.
FAILS: Final = b"/bin/false"

NON_INTERACTIVE: Final[Mapping[bytes, bytes]] = {
    # pagers
    **dict.fromkeys(
        (b"PAGER", b"GIT_PAGER", b"MANPAGER", b"SYSTEMD_PAGER", b"GH_PAGER", b"BAT_PAGER"), b"cat"
    ),
    b"AWS_PAGER": b"",
    b"DELTA_PAGER": b"cat",
    b"PSQL_PAGER": b"cat",
    b"LESS": b"-FRX",
    # editors
    **dict.fromkeys(
        (b"EDITOR", b"VISUAL", b"GIT_EDITOR", b"GIT_SEQUENCE_EDITOR", b"KUBE_EDITOR"), b"true"
    ),
    # questions
    b"GIT_TERMINAL_PROMPT": b"0",
    b"GIT_ASKPASS": FAILS,
    b"SSH_ASKPASS": FAILS,
    b"SSH_ASKPASS_REQUIRE": b"force",
    b"GCM_INTERACTIVE": b"never",
    b"DEBIAN_FRONTEND": b"noninteractive",
    b"CI": b"true",
    b"PIP_NO_INPUT": b"1",
    b"npm_config_yes": b"true",
    b"COMPOSER_NO_INTERACTION": b"1",
    b"CLOUDSDK_CORE_DISABLE_PROMPTS": b"1",
    b"TF_INPUT": b"0",
    b"CONDA_ALWAYS_YES": b"true",
    b"POETRY_NO_INTERACTION": b"1",
    b"HOMEBREW_NO_AUTO_UPDATE": b"1",
    # progress bars
    b"PIP_PROGRESS_BAR": b"off",
    b"PIP_DISABLE_PIP_VERSION_CHECK": b"1",
    b"npm_config_progress": b"false",
    b"npm_config_fund": b"false",
    b"npm_config_audit": b"false",
    b"npm_config_update_notifier": b"false",
    b"YARN_ENABLE_PROGRESS_BARS": b"false",
    b"CARGO_TERM_PROGRESS_WHEN": b"never",
    b"UV_NO_PROGRESS": b"1",
    b"HF_HUB_DISABLE_PROGRESS_BARS": b"1",
    b"BUILDKIT_PROGRESS": b"plain",
}

# git runs it with sh and appends the file's name, which the comment takes.
_NO_SEQUENCE_EDITOR: Final = (
    b"echo 'No editor opens here. Say what the rebase shall do in the command itself, for example:"
    b' GIT_SEQUENCE_EDITOR="sed -i 1!s/^pick/squash/" GIT_EDITOR=true git rebase -i HEAD~3\''
    b" >&2; exit 1 #"
)
EDITORS: Final[Mapping[bytes, bytes]] = {
    b"EDITOR": FAILS,
    b"VISUAL": FAILS,
    b"GIT_EDITOR": FAILS,
    b"GIT_SEQUENCE_EDITOR": _NO_SEQUENCE_EDITOR,
}


def variable_names(plan: Plan, caller: Caller) -> Plan | BadVariable:
    """A step: refuse variables of the call that bash could not have."""
    del caller
    for name, value in plan.command.extra.items():
        if not _NAME.fullmatch(name):
            return BadVariable(
                name=decode(name), problem="cannot be a variable's name; use letters, digits and _"
            )
        if b"\0" in value:
            return BadVariable(name=decode(name), problem="has a NUL byte in its value; remove it")
    return plan


def environment(
    policy: Policy, defaults: Mapping[bytes, bytes], allow: Sequence[str] = ()
) -> Callable[[Plan, Caller], Plan]:
    allowed = frozenset(name.encode() for name in allow)

    def step(plan: Plan, caller: Caller) -> Plan:
        """Give the command the variables that it shall have."""
        command = plan.command
        if policy == "inherit" and not defaults and not command.extra:
            return plan
        kept, dropped = _kept(policy, allowed, caller.variables)
        # In a session they are the call's alone, and it sees to them.
        extra = command.extra if plan.session is None else {}
        env = {**kept, **defaults, **extra}
        plan = msgspec.structs.replace(plan, command=msgspec.structs.replace(command, env=env))
        return noted(plan, Dropped(names=dropped)) if dropped else plan

    return step


def dropped(
    policy: Policy, allow: Sequence[str], env: Mapping[bytes, bytes] | None
) -> tuple[bytes, ...]:
    """The names of the variables that a policy does not let through."""
    allowed = frozenset(name.encode() for name in allow)
    before = os.environb if env is None else env
    kept, _ = _kept(policy, allowed, tuple(before.items()))
    return tuple(name for name in before if name not in kept)


@lru_cache(maxsize=4)
def _kept(
    policy: Policy, allowed: frozenset[bytes], pairs: tuple[tuple[bytes, bytes], ...]
) -> tuple[dict[bytes, bytes], tuple[str, ...]]:
    """What a policy lets through. Remembered: an environment hardly ever changes."""
    if policy == "inherit":
        return dict(pairs), ()
    keeps = _harmless if policy == "filtered" else _needed
    kept = {name: value for name, value in pairs if name in allowed or keeps(name, value)}
    return kept, tuple(sorted(decode(name) for name, _ in pairs if name not in kept))


def _harmless(name: bytes, value: bytes) -> bool:
    return not (
        _SECRET_NAME.fullmatch(name)
        or _HIJACKS.fullmatch(name)
        or _SECRET_VALUE.search(value, 0, _LOOKED_AT)
    )


def _needed(name: bytes, value: bytes) -> bool:
    return bool(_MINIMAL.fullmatch(name)) and not _SECRET_VALUE.search(value, 0, _LOOKED_AT)
