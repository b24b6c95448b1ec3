"""Reader of a user's set-up, which is what the user's shell startup files define.

This module runs the user's startup files in an interactive login shell, and keeps a part of the
state that the shell has afterwards. The login shell has at most two seconds to run the user's
startup files, and its stdin is empty. The output of the login shell is ignored, and processes that
the shell leaves running are killed. Like a session's shell, the login shell writes its variables,
functions, aliases and options to a file, the draft. From the login shell's state, this module keeps
functions, aliases, options, PATH and exported variables. This module keeps a variable of the login
shell that is not exported only if a kept function or alias refers to the variable. This module
drops functions, aliases and variables of the login shell that seem to contain a secret.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from nacre.eventloop import now
from nacre.model.plan import Command, Keep, LeftoverPolicy, Limits, Plan
from nacre.sessions.setup_signature import user_shell_name
from nacre.shell_state import state as states
from nacre.shell_state.bash_code import SAVE_SCRIPT, quote
from nacre.shell_state.state import ShellState
from nacre.store.session_files import new_draft_id
from nacre.store.state_dir import make_private_directory, open_private, private_state_dir
from nacre.text.secrets import has_secret, is_secret

SECONDS: Final = 2.0  # seconds in total for all shells that run a user's startup files
_MAX_BYTES: Final = 1024 * 1024  # maximum number of bytes to read of a startup file
_TIMEOUT: Final = b"/usr/bin/timeout"
_PASSED_VARIABLES: Final = re.compile(
    rb"HOME|USER|LOGNAME|SHELL|PATH|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|XDG_\w+|ZDOTDIR|DISPLAY"
)
# Variables of the login shell that no session takes over, because they are useful only inside the
# shell that set them, or to a user at a prompt.
_DROPPED_VARIABLES: Final = re.compile(
    rb"PS[0-4]|PROMPT\w*|HIST\w*|COLUMNS|LINES|MAIL\w*|OLDPWD|TERM|SHLVL|IFS|SSH_AGENT_PID"
    rb"|SSH_AUTH_SOCK|BASH_COMPLETION\w*|COMP_\w*|__\w+_SESSION|BASH_REMATCH|OPT\w+|HOSTNAME"
    rb"|\w+TYPE|GPG_TTY|PIPESTATUS|FUNCNEST|TMOUT|EXECIGNORE|GLOBIGNORE|BASH_ENV|ENV|LD_\w+"
)
_INTERACTIVE_OPTIONS: Final = frozenset(
    b"cdspell checkhash checkjobs checkwinsize cmdhist complete_fullquote direxpand dirspell "
    b"expand_aliases force_fignore histappend histreedit histverify hostcomplete huponexit lithist "
    b"login_shell mailwarn no_empty_cmd_completion progcomp progcomp_alias promptvars "
    b"restricted_shell".split()
)
_KEPT_OPTIONS: Final = frozenset(
    (b"allexport", b"noclobber", b"noglob", b"nounset", b"physical", b"pipefail")
)
_ATTRIBUTES: Final = re.compile(rb"^(?:builtin )?declare -f(\w+) (\S+)\n", re.MULTILINE)
_ESCAPE: Final = re.compile(rb"\\[abefnrtvE]")
_ASSIGNMENT: Final = re.compile(
    rb"([A-Za-z_]\w*)\"?'?\]?[+:]?=[\"']?[^\s\"'$;)]|\bprintf -v ([A-Za-z_]\w*)"
)
# `_SECRET_NAME` matches more variable names than `text.secrets`, because a session can do without a
# variable from startup files. `text.secrets` also filters the environment of programs, which may
# not work without their variables.
_SECRET_NAME: Final = re.compile(
    rb"(?i)(?:\w*_)?(?:TOKENS?|SECRETS?|KEYS?|\w*PASS|PASSWDS?|AUTH|BEARER|PAT|CREDS?|APIKEYS?)(?:_\w*)?"
)
_SECRET_TEXT: Final = re.compile(
    rb"""(?ix) \b authorization:\s* \w+ \s+ [^\s"'$`] | \b bearer\s+ [\w.~+/=-]{8,}
    | (?:password|passwd|passphrase|token|secret|api[-_]?key)
        ["'\\]*\s* [:=]\s* ["'\\]*[^\s"'$`;)(\\]{3,}
    | --(?:password|passwd|token|secret|api-?key)
        ["']?[\s=]\s* (?:\[\d+\]=)?["']?[^\s"'$`;)(-]{3,}
    | \s(?:-u|--user)\s* ["']?[^\s"'$:]{1,80}:[^\s"'$]
    | \b mysql\w*\s [^\n|;]{0,200}? -p["']?[^\s"'$`;] """
)
# Commands that users often alias to a variant that asks for confirmation, such as `rm -i`. In a
# session, a command that asks for confirmation would get no answer and do nothing.
_CONFIRMING_ALIASES: Final = frozenset((b"cp", b"ln", b"mv", b"rm"))
_CONFIRM_OPTION: Final = re.compile(rb"\s(?:-\w*[iI]\w*|--interactive\S*)(?=\s|'|$)")
_REFERENCED_NAME: Final = re.compile(rb"\$\{?[#!]?([A-Za-z_]\w*)")
_ALIAS: Final = re.compile(
    rb"^alias (?:-- )?((?:[^=\n]|\n(?!alias ))+?)=((?:'[^']*'|\\')*)\n", re.MULTILINE
)

# Script that the login shell runs after the user's startup files, to write its functions and its
# state to files. `_READ_SCRIPT` runs the commands in the user's PROMPT_COMMAND once, because an
# interactive bash runs them before its first prompt.
_READ_SCRIPT: Final = b"""\
%b\\builtin trap - ERR DEBUG EXIT; \\builtin set +e
for _nacre_line in "${PROMPT_COMMAND[@]}"; do builtin eval "$_nacre_line"; done
_nacre_status=0 _nacre_shopt=$BASHOPTS _nacre_mark=%b
\\builtin shopt -u expand_aliases
while builtin read -r _nacre_line; do
  builtin declare -f "$_nacre_line"
  builtin printf '%%s\\0' "$_nacre_line"
done < <(builtin compgen -A function) >|%b
exec {_nacre_fd}>|%b
builtin . %b
"""
_EXPORT_SCRIPT: Final = b"env -0 > %b"


def read_user_setup(
    shell: bytes, env: Mapping[bytes, bytes], place: bytes, run: Callable[[Plan], None]
) -> ShellState | None:
    """Run the user's shell startup files and return what they define, as a shell state. Return None
    if running the user's startup files gave no usable shell state, for any reason. `run` executes a
    plan and returns when the plan's command has ended."""
    clean = {name: value for name, value in env.items() if _PASSED_VARIABLES.fullmatch(name)}
    clean[b"TERM"] = b"dumb"
    try:
        directory = make_private_directory(f"{private_state_dir()}/sessions/drafts")
        mark = new_draft_id()
        path = f"{directory}/{mark}"
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError:
        return None
    try:
        ask = _SetupShells(clean, place, run)
        found = _read_bash(shell, ask, mark, path)
        if user_shell_name(env) in (b"zsh", b"fish"):
            theirs = _read_exports(env[b"SHELL"], ask, path)
            found = theirs if found is None else _merge(found, theirs)
        return found
    finally:
        for each in (path, f"{path}.functions", f"{path}.other"):
            try:
                os.unlink(each)
            except OSError:
                continue


class _SetupShells:
    """Runner of the shells that run the user's startup files, one after the other, with two seconds
    for all shells together."""

    def __init__(
        self, env: Mapping[bytes, bytes], place: bytes, run: Callable[[Plan], None]
    ) -> None:
        self.env = env
        self._cwd = place
        self._run = run
        self._until = now() + SECONDS

    def run(self, words: list[bytes]) -> None:
        """Run one shell with the user's startup files; the shell writes its result to a file.
        Processes that the user's shell leaves running are killed. The shell that runs the startup
        files is started under timeout(1), if installed, so that the shell is killed on time even if
        nacre has died."""
        seconds = max(0.0, self._until - now())
        if os.access(_TIMEOUT, os.X_OK):
            words = [_TIMEOUT, b"-s", b"KILL", b"%.1f" % (seconds + 0.5), *words]
        script = b"exec " + b" ".join(map(quote, words)) + b" </dev/null >/dev/null 2>&1"
        self._run(
            Plan(
                command=Command(original=b"", script=script, cwd=self._cwd, env=dict(self.env)),
                limits=Limits(timeout=seconds, grace=0.1, drain=0.0, kill_wait=0.5),
                keep=Keep(whole=0, head=0, tail=0),
                leftovers=LeftoverPolicy.END,
            )
        )


def _read_bash(shell: bytes, asking: _SetupShells, mark: str, path: str) -> ShellState | None:
    more = b"" if _login_reads_rc(asking.env) else b"[[ -r ~/.bashrc ]] && builtin . ~/.bashrc\n"
    draft, functions = os.fsencode(path), os.fsencode(f"{path}.functions")
    script = _READ_SCRIPT % (
        more,
        mark.encode(),
        quote(functions),
        quote(draft),
        quote(SAVE_SCRIPT),
    )
    asking.run([shell, b"--login", b"-i", b"-c", script])
    with open(path, "rb") as file:
        read = states.parse_draft(file.read(), None, mark.encode(), before=None, given={})
    if read is None:
        return None
    with open(functions, "rb") as file:
        return _select_state(read, _parse_functions(file.read()), asking.env)


def _login_reads_rc(env: Mapping[bytes, bytes]) -> bool:
    """Return whether the user's login startup file seems to read `.bashrc`, as most login startup
    files do."""
    home = env.get(b"HOME", b"")
    for name in (b".bash_profile", b".bash_login", b".profile"):
        try:
            with open(home + b"/" + name, "rb") as file:
                return b"bashrc" in file.read(_MAX_BYTES)
        except OSError:
            continue
    return False


def _read_exports(shell: bytes, asking: _SetupShells, path: str) -> ShellState | None:
    """Return the exported variables of the user's zsh or fish; a bash session can take over nothing
    else from another kind of shell."""
    other = os.fsencode(f"{path}.other")
    asking.run([shell, b"-l", b"-i", b"-c", _EXPORT_SCRIPT % quote(other)])
    try:
        with open(other, "rb") as file:
            pairs = [each.partition(b"=") for each in file.read().split(b"\0") if b"=" in each]
    except OSError:
        return None
    found = {
        name: value
        for name, _, value in pairs
        if re.fullmatch(rb"[A-Za-z_]\w*", name)
        and asking.env.get(name) != value
        and not _DROPPED_VARIABLES.fullmatch(name)
        and not _is_secret_name(name)
        and not _has_secret(value)
    }
    return _with_variables(states.export_declarations(found))


def _parse_functions(text: bytes) -> dict[bytes, bytes]:
    """Parse a text of shell functions into a map from function name to definition. In a text of
    shell functions, each NUL-terminated record is a function's definition, followed by the
    function's name on the last line."""
    found = {}
    for each in text.split(b"\0")[:-1]:
        body, _, name = each.rpartition(b"\n")
        found[name] = body + b"\n"
    return found


def _select_state(
    state: ShellState, functions: dict[bytes, bytes], given: Mapping[bytes, bytes]
) -> ShellState:
    bodies = {name: text for name, text in functions.items() if not _has_secret(text)}
    attributes = [
        b"declare -f%b %b\n" % (flags, name)
        for flags, name in _ATTRIBUTES.findall(state.functions)
        if name in bodies
    ]
    aliases = [
        b"alias %b%b=%b\n" % (b"-- " if name.startswith(b"-") else b"", name, words)
        for name, words in _ALIAS.findall(state.aliases)
        if not _has_secret(words)
        and not (name in _CONFIRMING_ALIASES and _CONFIRM_OPTION.search(words))
    ]
    spoken = b"".join((*bodies.values(), *aliases))
    needed = frozenset(_REFERENCED_NAME.findall(spoken))
    variables = {
        name: entry
        for name, entry in state.variables.items()
        if _is_kept(name, entry, needed, given)
    }
    return msgspec.structs.replace(
        _with_variables(variables),
        functions=states.build_functions(
            b"".join(text for name, text in bodies.items() if name != b"declare"),
            bodies.get(b"declare", b""),
            b"".join(attributes),
        ),
        names=tuple(bodies),
        aliases=b"".join(aliases),
        umask=state.umask,
        set=tuple(sorted(states.SET | _KEPT_OPTIONS.intersection(state.set))),
        shopt=tuple(
            sorted(
                {*state.shopt} - _INTERACTIVE_OPTIONS
                | _INTERACTIVE_OPTIONS.intersection(states.SHOPT)
            )
        ),
    )


def _has_secret(text: bytes) -> bool:
    """Return whether a text contains a secret: a value that looks like a secret, or an assignment
    to a name that usually holds a secret."""
    if any(has_secret(each) for each in (text, _ESCAPE.sub(b" ", text))):
        return True
    if _SECRET_TEXT.search(text):
        return True
    return any(_is_secret_name(one or other) for one, other in _ASSIGNMENT.findall(text))


def _is_secret_name(name: bytes) -> bool:
    return is_secret(name, b"") or _SECRET_NAME.fullmatch(name) is not None


def _is_kept(
    name: bytes, entry: bytes, needed: frozenset[bytes], given: Mapping[bytes, bytes]
) -> bool:
    flags, _, rest = entry[len(b"declare -") :].partition(b" ")
    value = rest.partition(b"=")[2].rstrip(b"\n")
    if (
        _DROPPED_VARIABLES.fullmatch(name)
        or _is_secret_name(name)
        or _has_secret(value)
        or b"r" in flags
    ):
        return False
    if name in given and entry == states.export_declarations(given).get(name):
        return False
    return b"x" in flags or name in needed


def _with_variables(variables: dict[bytes, bytes]) -> ShellState:
    return msgspec.structs.replace(states.EMPTY, variables=variables)


def _merge(one: ShellState, other: ShellState | None) -> ShellState:
    """Add the exported variables of the user's zsh or fish (`other`) to the bash state `one`. If
    both shells set a variable, the value in `other` is used."""
    if other is None:
        return one
    return msgspec.structs.replace(one, variables={**one.variables, **other.variables})
