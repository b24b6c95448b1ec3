"""Hint about variables that a command did not get because they look like secrets.

The hint is given if the script certainly reads such a variable, or if the command failed in a way
that fits the variable: a server refused the login, or the script runs a program that logs in with
the variable.
"""

import re
from typing import Final

from nacre.bash.analyze import analyze
from nacre.bash.commands import ParsedCommand
from nacre.bash.expansions import find_required_parameters
from nacre.hints.run_facts import SEARCHED, RunFacts
from nacre.model.outcome import Exited
from nacre.text.clean import decode

# Output of programs whose login, or whose request to a server, was refused.
_UNAUTHORIZED: Final = re.compile(
    r"(?i)\b(?:HTTP(?:/[\d.]{1,3})?|status(?:[ _]?code)?|returned error|npm (?:ERR!|error) code)"
    r"\W{1,4}E?40[13]\b(?!\.\w)|\b40[13]\W{1,3}(?:unauthori[sz]ed|forbidden|client error)"
    r"|\bunauthori[sz]ed\b|\b(?:error|status):? forbidden\b|\baccess denied for\b|ENEEDAUTH"
    r"|\bauthenticat(?:ion|e)\b.{0,30}\b(?:failed|required|error)\b|\bmust be authenticated\b"
    r"|^(?:\w{1,20}: )?error:? 40[13]\b(?!\.\w)"
    r"|^(?:\w{1,20}: )?(?:error: )?(?:invalid|expired) token\b|\btoken (?:has |is )?expired\b"
    r"|\bfailed to authenticate\b|\bnot (?:authenticated|logged in)\b|\blog ?in required\b"
    r"|\b(?:bad|invalid|missing|expired|incorrect) (?:\w{1,20} ){0,2}"
    r"(?:credentials?|api[ _-]?key|(?:access|auth|api|bearer) token)\b"
    r"|\bno (?:credentials?|api[ _-]?key) (?:found|provided|available|given|configured)\b"
    r"|\b(?:credentials?|api[ _-]?key|(?:access|auth|api|bearer) token) (?:(?:is|are|was|were) )?"
    r"(?:required|missing|invalid|expired|not (?:found|set|provided))\b"
    r"|\binvalid username or password\b|could not read (?:username|password)"
    r"|unable to locate credentials"
)
# Lines of programs that print only the status of an answer, as `curl -w '%{http_code}'` does.
_REFUSED_CODES: Final = ("401", "403")
# Lines about tests of logins.
_NOT_LOGIN: Final = re.compile(r"(?i)\bassert|\bexpected\b|\btest_|::")
# Programs that log in with a variable: prefixes of the variables' names, and the subcommands that
# log in (none: all subcommands).
_LOGINS: Final[dict[bytes, tuple[tuple[str, ...], frozenset[bytes]]]] = {
    b"gh": (("GH_", "GITHUB_"), frozenset()),
    b"glab": (("GITLAB_", "GLAB_"), frozenset()),
    **dict.fromkeys(
        (b"npm", b"pnpm", b"yarn"),
        (("NPM_", "NODE_AUTH", "YARN_"), frozenset((b"publish", b"whoami", b"login", b"access"))),
    ),
    **dict.fromkeys((b"aws", b"sam", b"cdk"), (("AWS_",), frozenset())),
    **dict.fromkeys((b"gcloud", b"gsutil", b"bq"), (("GOOGLE_", "GCP_", "CLOUDSDK_"), frozenset())),
    b"az": (("AZURE_", "ARM_"), frozenset()),
    b"docker": (("DOCKER_",), frozenset((b"push", b"pull", b"login"))),
    b"twine": (("TWINE_", "PYPI_"), frozenset()),
    b"uv": (("UV_", "PYPI_"), frozenset((b"publish",))),
    b"poetry": (("POETRY_", "PYPI_"), frozenset((b"publish",))),
    b"cargo": (("CARGO_",), frozenset((b"publish", b"login"))),
    b"terraform": (("TF_", "AWS_", "ARM_", "GOOGLE_"), frozenset()),
    b"kubectl": (("KUBE",), frozenset()),
    b"vercel": (("VERCEL_",), frozenset()),
    b"netlify": (("NETLIFY_",), frozenset()),
    b"wrangler": (("CLOUDFLARE_", "CF_"), frozenset()),
    b"heroku": (("HEROKU_",), frozenset()),
    b"fly": (("FLY_",), frozenset()),
    **dict.fromkeys((b"hf", b"huggingface-cli"), (("HF_", "HUGGING"), frozenset())),
    **dict.fromkeys((b"psql", b"pg_dump", b"createdb"), (("PG", "POSTGRES"), frozenset())),
    **dict.fromkeys((b"mysql", b"mysqldump"), (("MYSQL_",), frozenset())),
}
_CONFIG: Final = "~/.config/nacre/config.toml"
_MAX_NAMED: Final = 5  # maximum number of variables that a hint names


def withheld_secret(facts: RunFacts) -> str | None:
    """Return a hint if the command reads a variable that it did not get, or failed in a way that
    fits such a variable."""
    if not facts.withheld:
        return None
    # A program may exit with 0 although a server has refused it, as curl does.
    failed = facts.failed or facts.stage_failed
    refused = _was_refused(facts) or any(line.strip() in _REFUSED_CODES for line in facts.lines)
    names = _mentioned_secrets(facts) if failed or refused else _needed_secrets(facts)
    if not names and failed and facts.ending != Exited(127):
        names = _fitting_secrets(facts)
    if not names:
        return None
    more = len(names) - _MAX_NAMED
    shown = ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
    alone = len(names) == 1
    are, because, it = ("is", "it looks", "it") if alone else ("are", "they look", "them")
    allow = ", ".join(f'"{name}"' for name in names[:_MAX_NAMED])
    return (
        f"{shown} {are} withheld from commands because {because} like a secret; the user can allow "
        f"{it} with allow = [{allow}] under [nacre] in {_CONFIG}"
    )


def _needed_secrets(facts: RunFacts) -> list[str]:
    """Return the withheld variables that the script certainly reads and for which it has no
    default."""
    expanded = find_required_parameters(facts.script)
    script = decode(facts.script)
    return [
        name
        for name in _unset_secrets(facts)
        if name.encode() in expanded or re.search(_READS.format(re.escape(name)), script)
    ]


def _mentioned_secrets(facts: RunFacts) -> list[str]:
    """Return the withheld variables that the script probably reads, as in
    `curl -H "Key: $API_KEY"` and `os.environ["API_KEY"]`, also with a default."""
    script = decode(facts.script)
    patterns = (_READS, _EXPANDS)
    return [
        name
        for name in _unset_secrets(facts)
        if any(re.search(each.format(re.escape(name)), script) for each in patterns)
    ]


def _unset_secrets(facts: RunFacts) -> list[str]:
    """Return the withheld variables that the script does not set itself."""
    script = decode(facts.script)
    return [name for name in facts.withheld if not re.search(_SETS.format(re.escape(name)), script)]


# How a script may expand the variable with the name `{0}`, read it with a builtin or an
# interpreter, and set it.
_EXPANDS: Final = (
    r"\$\{{?[#!]?{0}\b"
    r"|\b(?:environ\W{{1,3}}(?:get\W{{1,3}})?|getenv\W{{1,3}}|process\.env\W{{1,3}}){0}\b"
)
_READS: Final = (
    r"\bprintenv {0}\b|\s-v {0}\b|\benv\b[ |]{{1,5}}grep\b[^\n;|&]{{0,60}}\b{0}\b"
    r"|\b(?:python[\d.]{{0,4}}|node|ruby|perl|php) -\w{{0,3}}[cepr] [^\n]{{0,400}}"
    r"\b(?:environ\W{{1,3}}(?:get\W{{1,3}})?|getenv\W{{1,3}}|process\.env\W{{1,3}}){0}\b"
)
_SETS: Final = (
    r"\b{0}\+?=|\b(?:unset|for)\s{{1,9}}(?:-v\s{{1,9}})?{0}\b|\bread\b[^\n;|&]{{0,200}}\b{0}\b"
)


def _fitting_secrets(facts: RunFacts) -> list[str]:
    text = decode(facts.output[-SEARCHED:])
    named = [name for name in facts.withheld if re.search(rf"\b{re.escape(name)}\b", text)]
    if named:
        return named
    prefixes = {
        prefix
        for each in analyze(facts.script).commands
        if not _is_missing(each, text)
        for prefix in _login_prefixes(each)
    }
    fitting = [name for name in facts.withheld if name.startswith(tuple(prefixes))]
    if fitting:
        return fitting
    return list(facts.withheld) if _was_refused(facts) else []


def _is_missing(command: ParsedCommand, output: str) -> bool:
    """Return whether the output says that there is no program of this name."""
    name = re.escape(decode(command.name or b""))
    return re.search(rf"{name}\W{{1,3}}(?:command not found|No such file)", output) is not None


def _was_refused(facts: RunFacts) -> bool:
    """Return whether the output says that a login or a request was refused."""
    return any(_UNAUTHORIZED.search(line) and not _NOT_LOGIN.search(line) for line in facts.lines)


def _login_prefixes(command: ParsedCommand) -> tuple[str, ...]:
    prefixes, subcommands = _LOGINS.get(command.name or b"", ((), frozenset()))
    operands = {word.text for word in command.arguments}
    return prefixes if not subcommands or subcommands & operands else ()
