"""Preparation step `environment_step`: selects the environment variables that a command gets.

The policy `inherit` passes all of the caller's variables to the command. The policy `filtered`
drops variables whose name or value looks secret, and variables that inject code into every shell,
such as BASH_ENV. The policy `minimal` keeps about a dozen variables, such as PATH and HOME. The
default variables of a contract (tool dialect) override the caller's variables that the policy
`inherit`, `filtered` or `minimal` passes. Variables that the tool call itself sets override all
other variables and are never filtered.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal

import msgspec

from nacre.model.caller import Caller
from nacre.model.findings import AnyFinding, VariablesDropped
from nacre.model.plan import OpenStdin, Plan
from nacre.model.refusals import BadVariable
from nacre.prepare.decide import add_findings
from nacre.text.clean import decode
from nacre.text.secrets import has_secret, is_secret

Policy = Literal["inherit", "filtered", "minimal"]

_NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_CODE_INJECTING: Final = re.compile(
    rb"BASH_ENV|ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|LD_PRELOAD|LD_AUDIT|DYLD_INSERT_LIBRARIES",
    re.DOTALL,
)
_MINIMAL: Final = re.compile(
    rb"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TERM|TZ|TMPDIR|PWD"
)

# Program that always fails; it replaces editors and password prompts, which need a user.
FAIL_EDITOR: Final = b"/bin/false"

NON_INTERACTIVE: Final[Mapping[bytes, bytes]] = {
    # Variables that disable pagers such as `less`.
    **dict.fromkeys(
        (b"PAGER", b"GIT_PAGER", b"MANPAGER", b"SYSTEMD_PAGER", b"GH_PAGER", b"BAT_PAGER"), b"cat"
    ),
    b"AWS_PAGER": b"",
    b"DELTA_PAGER": b"cat",
    b"PSQL_PAGER": b"cat",
    b"LESS": b"-FRX",
    # Variables that replace editors by `true`, which exits at once and leaves the file unchanged.
    **dict.fromkeys(
        (b"EDITOR", b"VISUAL", b"GIT_EDITOR", b"GIT_SEQUENCE_EDITOR", b"KUBE_EDITOR"), b"true"
    ),
    # Variables that disable prompts of programs such as git and pip.
    b"GIT_TERMINAL_PROMPT": b"0",
    b"GIT_ASKPASS": FAIL_EDITOR,
    b"SSH_ASKPASS": FAIL_EDITOR,
    b"SSH_ASKPASS_REQUIRE": b"force",
    b"GCM_INTERACTIVE": b"never",
    b"DEBIAN_FRONTEND": b"noninteractive",
    b"PIP_NO_INPUT": b"1",
    b"npm_config_yes": b"true",
    b"COMPOSER_NO_INTERACTION": b"1",
    b"CLOUDSDK_CORE_DISABLE_PROMPTS": b"1",
    b"TF_INPUT": b"0",
    b"CONDA_ALWAYS_YES": b"true",
    b"POETRY_NO_INTERACTION": b"1",
    b"HOMEBREW_NO_AUTO_UPDATE": b"1",
    # Python shows its output as it is printed, also when it writes to a pipe.
    b"PYTHONUNBUFFERED": b"1",
    # Variables that disable progress bars and notices.
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

# Variables for a command with an open stdin: programs may prompt on stdin. git and its
# helpers ask only on a terminal, so their prompts stay off.
INTERACTIVE: Final[Mapping[bytes, bytes]] = {
    name: value
    for name, value in NON_INTERACTIVE.items()
    if name
    not in (
        *(b"DEBIAN_FRONTEND", b"PIP_NO_INPUT", b"npm_config_yes", b"COMPOSER_NO_INTERACTION"),
        *(b"CLOUDSDK_CORE_DISABLE_PROMPTS", b"TF_INPUT", b"CONDA_ALWAYS_YES"),
        b"POETRY_NO_INTERACTION",
    )
} | {b"SSH_ASKPASS_REQUIRE": b"never"}

# Variables that the `pi` contract sets in addition, as the agent pi does.
PI_NON_INTERACTIVE: Final[Mapping[bytes, bytes]] = {
    **NON_INTERACTIVE,
    **dict.fromkeys((b"GLAB_PAGER", b"MYSQL_PAGER", b"HOMEBREW_PAGER"), b"cat"),
    b"LESS": b"FRX",
    b"TERM": b"dumb",
    b"NO_COLOR": b"1",
    b"CI": b"true",
    b"PNPM_DISABLE_SELF_UPDATE_CHECK": b"true",
    b"PNPM_UPDATE_NOTIFIER": b"false",
    b"YARN_ENABLE_TELEMETRY": b"0",
    b"YARN_ENABLE_PROGRESS_BARS": b"0",
    b"TF_IN_AUTOMATION": b"1",
    b"GH_PROMPT_DISABLED": b"1",
}

NO_EDITOR: Final = b"No editor opens here."
# Value of GIT_SEQUENCE_EDITOR: git runs this text with sh and appends a file name, which the final
# `#` makes a comment.
_NO_SEQUENCE_EDITOR: Final = (
    b"echo '" + NO_EDITOR + b" Give the edit of the rebase in the command itself, for example:"
    b' GIT_SEQUENCE_EDITOR="sed -i 1!s/^pick/squash/" GIT_EDITOR=true git rebase -i HEAD~3\''
    b" >&2; exit 1 #"
)
EDITORS: Final[Mapping[bytes, bytes]] = {
    b"EDITOR": FAIL_EDITOR,
    b"VISUAL": FAIL_EDITOR,
    b"GIT_EDITOR": FAIL_EDITOR,
    b"GIT_SEQUENCE_EDITOR": _NO_SEQUENCE_EDITOR,
}


def check_variable_names(plan: Plan, caller: Caller) -> Plan | BadVariable:
    """Refuse a call that sets a variable with an invalid name or a NUL byte in its value."""
    del caller
    for name, value in plan.command.call_env.items():
        if not _NAME.fullmatch(name):
            return BadVariable(
                name=decode(name), problem="cannot be a variable's name; use letters, digits and _"
            )
        if b"\0" in value:
            return BadVariable(name=decode(name), problem="has a NUL byte in its value; remove it")
    return plan


def environment_step(
    policy: Policy,
    defaults: Mapping[bytes, bytes],
    allow: Sequence[str] = (),
    with_input: Mapping[bytes, bytes] | None = None,
) -> Callable[[Plan, Caller], Plan]:
    """Return the step. `with_input` are the default variables of a command whose stdin stays open;
    None means `defaults`."""
    allowed = frozenset(name.encode() for name in allow)

    def step(plan: Plan, caller: Caller) -> Plan:
        """Set the command's environment according to the policy `inherit`, `filtered` or
        `minimal`."""
        command = plan.command
        if policy == "inherit" and not defaults and not command.call_env:
            return plan
        passed, dropped = _filter_variables(policy, allowed, caller.variables)
        # In a session (a persistent shell), the session manager sets the variables of the tool call
        # instead, so that they do not last beyond this call.
        extra = command.call_env if plan.session is None else {}
        chosen = defaults
        if with_input is not None and isinstance(plan.stdin, OpenStdin):
            chosen = with_input
        env = {**passed, **chosen, **extra}
        plan = msgspec.structs.replace(plan, command=msgspec.structs.replace(command, env=env))
        given = {decode(name) for name in command.call_env}
        dropped = tuple(name for name in dropped if name not in given)
        return add_findings(plan, VariablesDropped(names=dropped)) if dropped else plan

    return step


def withheld_secrets(findings: Sequence[AnyFinding]) -> tuple[str, ...]:
    """Return the names of the variables that a command did not get because they look like
    secrets."""
    dropped = [
        name for each in findings if isinstance(each, VariablesDropped) for name in each.names
    ]
    return secret_names(dropped)


def secret_names(dropped: Iterable[str]) -> tuple[str, ...]:
    """Return the dropped variables without those that were dropped because they inject code."""
    return tuple(name for name in dropped if not _CODE_INJECTING.fullmatch(name.encode()))


def dropped_names(
    policy: Policy, allow: Sequence[str], env: Mapping[bytes, bytes] | None
) -> tuple[bytes, ...]:
    """Return the names of the environment variables that a policy withholds from commands."""
    allowed = frozenset(name.encode() for name in allow)
    before = os.environb if env is None else env
    passed, _ = _filter_variables(policy, allowed, tuple(before.items()))
    return tuple(name for name in before if name not in passed)


@lru_cache(maxsize=4)
def _filter_variables(
    policy: Policy, allowed: frozenset[bytes], pairs: tuple[tuple[bytes, bytes], ...]
) -> tuple[dict[bytes, bytes], tuple[str, ...]]:
    """Return the environment variables that a policy passes to commands, and the names of the
    variables that it drops. The result of `_filter_variables` is cached, because the caller's
    environment rarely changes."""
    if policy == "inherit":
        return dict(pairs), ()
    keeps = _is_harmless if policy == "filtered" else _is_minimal
    passed = {name: value for name, value in pairs if name in allowed or keeps(name, value)}
    return passed, tuple(sorted(decode(name) for name, _ in pairs if name not in passed))


def _is_harmless(name: bytes, value: bytes) -> bool:
    return not (_CODE_INJECTING.fullmatch(name) or is_secret(name, value))


def _is_minimal(name: bytes, value: bytes) -> bool:
    return bool(_MINIMAL.fullmatch(name)) and not has_secret(value)
