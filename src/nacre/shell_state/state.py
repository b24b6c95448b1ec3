"""State of a session's shell: parsed from a draft, compared, and restored in the next shell.

A draft is written by `save.bash` when a shell ends. Its sections are printed by bash itself, with
`declare -p`, `declare -f` and `alias -p`. The variables are parsed one by one, for three reasons.
Some variables are bash's own and never part of the state. Some variables belong to one call only.
And the printed `declare` commands can add attributes to a variable, but not remove them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from nacre.shell_state.bash_code import OWN_NAMES, quote

# Variables that bash itself sets, or that are meaningful only while their shell runs.
_OWN: Final = frozenset(
    b"_ BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND "
    b"BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_SOURCE BASH_SUBSHELL "
    b"BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS COPROC COPROC_PID DIRSTACK "
    b"EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO PIPESTATUS POSIXLY_CORRECT "
    b"PPID PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID".split()
)
# `shopt` options that are on in every new shell of nacre, in bash 5.2.
SHOPT: Final = tuple(
    b"checkwinsize cmdhist complete_fullquote expand_aliases extquote force_fignore "
    b"globasciiranges globskipdots hostcomplete interactive_comments patsub_replacement progcomp "
    b"promptvars sourcepath".split()
)
# Variables that every new shell sets; a session may have unset some of them.
_SET_BY_BASH: Final = b"HOSTNAME HOSTTYPE IFS MACHTYPE OLDPWD OPTERR OSTYPE PATH PS4 TERM".split()
_CHANGES: Final = frozenset(b"iluc")  # attributes that transform an assigned value
_COMPAT: Final = b"BASH_COMPAT"  # a variable that is also a shell option

_LOCAL_OPTIONS: Final = b"local -\n"  # first line of `declare -p` in a function with local options
_VARIABLE: Final = re.compile(
    rb"""declare\ -(\S+)\ ([A-Za-z_][A-Za-z0-9_]*)
    (?:=( "[^"\\]*+(?:\\.[^"\\]*+)*+" | \$'[^'\\]*+(?:\\.[^'\\]*+)*+'
        | \( (?: [^"'()\\$]++ | "[^"\\]*+(?:\\.[^"\\]*+)*+"
                | \$'[^'\\]*+(?:\\.[^'\\]*+)*+' )*+ \) ) )?\n""",
    re.VERBOSE | re.DOTALL,
)
TRAP: Final = re.compile(rb"trap -- ((?:'[^']*'|\\')+) (\S+)\n")

# `set -o` options that are on in every new shell.
SET: Final = frozenset((b"braceexpand", b"hashall", b"interactive-comments"))
# Options that cannot or must not be restored. With some of them the shell would never run a
# command again; `monitor` is job control.
_NO_SET: Final = frozenset((b"monitor", b"noexec", b"onecmd", b"privileged", b"restricted"))
_NO_SHOPT: Final = frozenset((b"expand_aliases", b"login_shell", b"restricted_shell"))
_UNSEEN: Final = (b"INT", b"QUIT")
_IGNORED: Final = b"''"
_SIG: Final = re.compile(rb"\ASIG")
# Traps that would fire while the shell is still restoring its state.
_LATE: Final = (b"ERR", b"RETURN", b"DEBUG")


class ShellState(Struct, frozen=True, kw_only=True):
    """Everything that one shell of a session passes on to the next shell."""

    status: int = 0
    functions: bytes  # definitions and attributes of functions, as bash prints them
    names: tuple[bytes, ...]  # names of the functions
    variables: dict[bytes, bytes]  # variable name → its declaration, as in `declare -x NAME=...`
    aliases: bytes
    set: tuple[bytes, ...]
    shopt: tuple[bytes, ...]
    posix: bytes | None  # value of POSIXLY_CORRECT; None: the shell was not in POSIX mode
    umask: bytes
    directory: bytes
    stack: tuple[bytes, ...]
    arguments: tuple[bytes, ...]
    traps: dict[bytes, bytes]  # signal name → command of the trap, quoted
    begins: bool = False  # no command has run yet: bash's own variables have their initial values


EMPTY: Final = ShellState(
    functions=b"",
    names=(),
    variables={},
    aliases=b"",
    set=tuple(sorted(SET)),
    shopt=SHOPT,
    posix=None,
    umask=b"",
    directory=b"",
    stack=(),
    arguments=(),
    traps={},
)


_FUNCTION: Final = re.compile(rb"BASH_FUNC_(.+)%%")


def parse_sections(draft: bytes, mark: bytes) -> dict[bytes, tuple[bytes, bytes]] | None:
    """Split a draft: section name → (words after the name, text). None: the draft is incomplete."""
    if not draft.endswith(b"#%b end\n" % mark):
        return None
    begin = b"#%b " % mark
    if not draft.startswith(begin):
        return None
    found = {}
    for section in draft[len(begin) :].split(b"\n" + begin):
        head, _, text = section.partition(b"\n")
        name, _, words = head.partition(b" ")
        found[name] = (words, text)
    return found


def parse_draft(
    draft: bytes,
    traps: bytes | None,
    mark: bytes,
    *,
    before: ShellState | None,
    given: Mapping[bytes, bytes],
    spared: Iterable[bytes] = (),
    ignored: Iterable[str] = (),
) -> ShellState | None:
    """Return the state that a draft describes; None if the draft is incomplete or invalid.

    `traps` is what the shell printed about its traps on INT and QUIT, if it did. `before` is the
    state before the command. If there was no such state, `given` is the environment. `spared` are
    variables that were set for this call only; they keep their earlier values. `ignored` are
    signals that the shell inherited as ignored; in a draft such signals look like traps.
    """
    found = parse_sections(draft, mark)
    if found is None:
        return None
    try:
        variables = parse_declarations(found[b"variables"][1] + b"\n")
        old = {*spared, *found[b"old"][0].split()}
        for name in old:
            variables.pop(name, None)
        earlier = before.variables if before is not None else export_declarations(given)
        variables.update((name, earlier[name]) for name in old if name in earlier)
        status, *unbegun = found[b"status"][0].split()
        if unbegun and before is not None:
            return msgspec.structs.replace(before, status=int(status))
        options = found[b"options"][1].split(b"\n")
        inside, arguments = found[b"arguments"]
        return ShellState(
            status=int(status),
            functions=build_functions(
                *(
                    _split_lines(found[each][1])
                    for each in (b"functions", b"declare", b"attributes")
                )
            ),
            names=tuple(found[b"names"][1].split(b"\n")) if found[b"names"][1] else (),
            variables=variables,
            aliases=_split_lines(found[b"aliases"][1]),
            set=tuple(options[0].split(b":")) if options[0] else (),
            shopt=tuple(options[1].split(b":")) if options[1] else (),
            posix=options[2] if b"posix" in options[0].split(b":") else None,
            umask=found[b"umask"][1],
            directory=found[b"directory"][1],
            stack=tuple(each for each in found[b"stack"][1].split(b"\0") if each),
            arguments=(before.arguments if before else ())
            if inside
            else _parse_arguments(arguments),
            traps=_parse_traps(_split_lines(found[b"traps"][1]), traps, before, ignored),
        )
    except (KeyError, ValueError, IndexError):
        return None


def build_functions(bodies: bytes, declare: bytes, attributes: bytes) -> bytes:
    """Return a script that defines functions and sets their attributes.

    `declare` is the definition of a function with that name, if there is one. That function comes
    last, because the lines that set the attributes of the other functions would call it.
    """
    said = [(line, line.endswith(b" declare")) for line in attributes.splitlines()]
    others = b"".join(line + b"\n" for line, its in said if not its)
    return bodies + others + declare + b"".join(b"builtin %b\n" % line for line, its in said if its)


def _split_lines(text: bytes) -> bytes:
    return text + b"\n" if text else b""


def _parse_arguments(text: bytes) -> tuple[bytes, ...]:
    count, *words = text.split(b"\0")
    return tuple(words[: int(count)])


def _parse_traps(
    text: bytes, more: bytes | None, before: ShellState | None, ignored: Iterable[str]
) -> dict[bytes, bytes]:
    found = _parse_trap_names(text)
    found.pop(b"EXIT", None)  # the EXIT trap is nacre's own
    mine = {} if before is None else before.traps
    known = mine if more is None else _parse_trap_names(more)
    for name in _UNSEEN:
        if found.get(name) == _IGNORED:  # perhaps only the saver ignores the signal
            found[name] = known.get(name, _IGNORED)
    for each in ignored:
        name = _SIG.sub(b"", each.encode())
        if found.get(name) == _IGNORED and name not in mine:
            del found[name]
    return found


def _parse_trap_names(text: bytes) -> dict[bytes, bytes]:
    """Return signal name → trap command. In POSIX mode bash prints the names without SIG."""
    return {_SIG.sub(b"", name): words for words, name in TRAP.findall(text)}


def parse_declarations(text: bytes) -> dict[bytes, bytes]:
    """Parse the output of `declare -p`: variable name → its declaration. Raises ValueError.

    Variables of bash itself and of nacre are left out.
    """
    found, at = {}, len(_LOCAL_OPTIONS) if text.startswith(_LOCAL_OPTIONS) else 0
    while entry := _VARIABLE.match(text, at):
        at, name = entry.end(), entry[2]
        if name not in _OWN and not name.startswith(OWN_NAMES):
            found[name] = entry[0]
    if text[at:].strip():
        raise ValueError(f"not what bash prints: {text[at : at + 80]!r}")
    return found


def export_declarations(env: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return variable name → declaration for the variables of an environment."""
    return {
        name: b"declare -x %b=%b\n" % (name, quote(value))
        for name, value in env.items()
        if name not in _OWN
    }


def initial_state(snapshot: ShellState, env: Mapping[bytes, bytes], directory: bytes) -> ShellState:
    """Return the first state of a session, from a snapshot of the user's set-up."""
    # Variables that the command gets anyway take precedence. The most important ones are the
    # pagers and editors that never prompt.
    variables = {**snapshot.variables, **export_declarations(env)}
    if b"PATH" in snapshot.variables:
        variables[b"PATH"] = snapshot.variables[b"PATH"]
    return msgspec.structs.replace(snapshot, variables=variables, directory=directory, begins=True)


def build_restore_script(state: ShellState, given: Iterable[bytes]) -> bytes:
    """Return a script that restores this state in a new shell.

    `given` are the names of the variables that the new shell has in its environment. Some of them
    may be exported functions. Settings that would affect the restore script itself are applied
    later, right before the script of the next command.
    """
    out = [b"builtin cd -- %b\n" % quote(state.directory)]
    out.append(b"builtin umask %b\n" % state.umask if state.umask else b"")
    out.append(b"builtin dirs -c\n" if state.stack else b"")
    out += [b"builtin pushd -n %b >/dev/null\n" % quote(each) for each in reversed(state.stack)]
    there = {*given} if state.begins else {*given, *_SET_BY_BASH}
    out.append(_unset(b"-f", (found[1] for name in there if (found := _FUNCTION.fullmatch(name)))))
    out.append(_unset(b"-v", sorted(there - _OWN)))
    out += [_declare(entry) for name, entry in state.variables.items() if name != _COMPAT]
    out.append(state.aliases)  # aliases are not expanded in this script
    if state.functions:
        # Functions come after the variables, because a function may be named `declare`. Variables
        # are set by a plain `declare`, because `builtin declare` accepts no array values. Some
        # function bodies need extglob to be parsed. The functions have an `eval` of their own,
        # because bash prints some functions in a form that bash cannot parse.
        read = b"builtin eval -- %b\n" % quote(state.functions)
        out += [b"builtin shopt -s extglob\n", read, b"builtin shopt -u extglob\n"]
    if state.arguments:
        out.append(b"builtin set -- %b\n" % b" ".join(map(quote, state.arguments)))
    out.append(_shopt_lines(state))
    if _COMPAT in state.variables:  # BASH_COMPAT is no array, so `builtin declare` accepts it
        out.append(b"builtin " + state.variables[_COMPAT])
    early = {name: words for name, words in state.traps.items() if name not in _LATE}
    out += [b"builtin trap -- %b %b\n" % (words, name) for name, words in early.items()]
    if b"expand_aliases" not in state.shopt:  # the option is on unless a command turned it off
        out.append(b"_nacre_bare=1\n")
    late = _first_line_prefix(state)
    if late:
        out.append(b"_nacre_late=%b\n" % quote(late))
    return b"".join(out)


def _declare(entry: bytes) -> bytes:
    """Return code that first assigns the value and then sets attributes that transform values.

    Such an attribute may have been set after the value was assigned.
    """
    flags, _, rest = entry[len(b"declare -") :].partition(b" ")
    name, given, _ = rest.partition(b"=")
    if not given or _CHANGES.isdisjoint(flags):
        return entry
    first = bytes(each for each in flags if each not in _CHANGES and each != ord("r"))
    return b"declare -%b %bdeclare -%b %b\n" % (first or b"-", rest, flags, name)


def _unset(kind: bytes, names: Iterable[bytes]) -> bytes:
    words = b" ".join(map(quote, names))
    return b"builtin unset %b %b\n" % (kind, words) if words else b""


def _shopt_lines(state: ShellState) -> bytes:
    wanted, there = frozenset(state.shopt) - _NO_SHOPT, frozenset(SHOPT) - _NO_SHOPT
    on, off = wanted - there, there - wanted
    said = b"builtin shopt -s %b\n" % b" ".join(sorted(on)) if on else b""
    return said + (b"builtin shopt -u %b\n" % b" ".join(sorted(off)) if off else b"")


def _first_line_prefix(state: ShellState) -> bytes:
    """Return code to insert before the first line of the script, which keeps its line number.

    If bash cannot parse the first line, bash runs none of the inserted code. That code begins by
    unsetting `_nacre_late`, so that the saver can tell whether the inserted code ran.
    """
    wanted = frozenset(state.set) - _NO_SET - {b"posix"}
    words = [b"-o " + each for each in sorted(wanted - SET)]
    words += [b"+o " + each for each in sorted(SET - wanted)]
    said = [
        b"\\builtin trap -- %b %b" % (state.traps[each], each)
        for each in _LATE[:2]
        if each in state.traps
    ]
    if state.posix is not None:
        said.append(b"\\builtin set -o posix; POSIXLY_CORRECT=%b" % quote(state.posix))
    if words:
        said.append(b"\\builtin set %b" % b" ".join(words))
    if b"DEBUG" in state.traps:
        said.append(b"{ \\builtin trap -- %b DEBUG; } 2>/dev/null" % state.traps[b"DEBUG"])
    if not said:
        return b""
    return b"".join(b"%b; " % each for each in (b"\\builtin unset -v _nacre_late", *said))
