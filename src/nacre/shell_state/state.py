"""The state of a shell: read from what it wrote as it ended, compared, and told to the next one.

A draft (`save.bash`) has sections that bash itself has put into words: `declare -p`, `declare -f`,
`alias -p`. The variables are taken apart here, because some are bash's own and never state, some
belong to one call only, and `declare` can add what a variable is, but not take it away.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from nacre.shell_state.bash_code import OWN_NAMES, quote

# What bash sets by itself, or what means something only while a shell lives.
_OWN: Final = frozenset(
    b"_ BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND "
    b"BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_SOURCE BASH_SUBSHELL "
    b"BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS COPROC COPROC_PID DIRSTACK "
    b"EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO PIPESTATUS POSIXLY_CORRECT "
    b"PPID PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID".split()
)
# Of every new shell of ours, in bash 5.2.
SHOPT: Final = tuple(
    b"checkwinsize cmdhist complete_fullquote expand_aliases extquote force_fignore "
    b"globasciiranges globskipdots hostcomplete interactive_comments patsub_replacement progcomp "
    b"promptvars sourcepath".split()
)
# Set by every new shell; some sessions may have unset them.
_SET_BY_BASH: Final = b"HOSTNAME HOSTTYPE IFS MACHTYPE OLDPWD OPTERR OSTYPE PATH PS4 TERM".split()
_CHANGES: Final = frozenset(b"iluc")  # attributes by which a value becomes another
_COMPAT: Final = b"BASH_COMPAT"  # an option as much as a variable

_LOCAL_OPTIONS: Final = b"local -\n"  # as bash says that a function has options of its own
_VARIABLE: Final = re.compile(
    rb"""declare\ -(\S+)\ ([A-Za-z_][A-Za-z0-9_]*)
    (?:=( "[^"\\]*+(?:\\.[^"\\]*+)*+" | \$'[^'\\]*+(?:\\.[^'\\]*+)*+'
        | \( (?: [^"'()\\$]++ | "[^"\\]*+(?:\\.[^"\\]*+)*+"
                | \$'[^'\\]*+(?:\\.[^'\\]*+)*+' )*+ \) ) )?\n""",
    re.VERBOSE | re.DOTALL,
)
TRAP: Final = re.compile(rb"trap -- ((?:'[^']*'|\\')+) (\S+)\n")

SET: Final = frozenset((b"braceexpand", b"hashall", b"interactive-comments"))  # of every new shell
# What a shell cannot be told, or must not: it would never run anything again, or it is job control.
_NO_SET: Final = frozenset((b"monitor", b"noexec", b"onecmd", b"privileged", b"restricted"))
_NO_SHOPT: Final = frozenset((b"expand_aliases", b"login_shell", b"restricted_shell"))
_UNSEEN: Final = (b"INT", b"QUIT")
_IGNORED: Final = b"''"
_SIG: Final = re.compile(rb"\ASIG")
# Traps that would speak up while the shell is still being told who it is.
_LATE: Final = (b"ERR", b"RETURN", b"DEBUG")


class ShellState(Struct, frozen=True, kw_only=True):
    """Everything that one shell hands on to the next."""

    status: int = 0
    functions: bytes  # as bash prints them, with what they are
    names: tuple[bytes, ...]  # of the functions
    variables: dict[bytes, bytes]  # name → `declare -x NAME=...`
    aliases: bytes
    set: tuple[bytes, ...]
    shopt: tuple[bytes, ...]
    posix: bytes | None  # what POSIXLY_CORRECT was, if that was so
    umask: bytes
    directory: bytes
    stack: tuple[bytes, ...]
    arguments: tuple[bytes, ...]
    traps: dict[bytes, bytes]  # signal → what to do, quoted
    begins: bool = False  # nobody has run anything yet: what bash sets by itself is as it sets it


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
    """name → (words behind it, text); None for a draft that was not written to its end."""
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
    """The state that a draft describes; `traps`: what its shell said of INT and QUIT, if it was
    asked. `before` is the state before that command; where there was
    none, `given` is the environment. `spared` are variables that belonged to the call alone, and
    are what they were before; `ignored` are signals that its shell has not ignored by itself, which
    look like traps. None: it was not written to its end, or makes no sense."""
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
    """A script that makes them; `declare` is the one of that name, if there is one. It comes last:
    what is said of the others would call it."""
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
    found.pop(b"EXIT", None)  # ours
    mine = {} if before is None else before.traps
    known = mine if more is None else _parse_trap_names(more)
    for name in _UNSEEN:
        if found.get(name) == _IGNORED:  # perhaps only by the copy that saves
            found[name] = known.get(name, _IGNORED)
    for each in ignored:
        name = _SIG.sub(b"", each.encode())
        if found.get(name) == _IGNORED and name not in mine:
            del found[name]
    return found


def _parse_trap_names(text: bytes) -> dict[bytes, bytes]:
    """What is done at which signal. In a shell that is POSIX's their names are shorter."""
    return {_SIG.sub(b"", name): words for words, name in TRAP.findall(text)}


def parse_declarations(text: bytes) -> dict[bytes, bytes]:
    """What `declare -p` says of each variable that is a command's own. Raises ValueError."""
    found, at = {}, len(_LOCAL_OPTIONS) if text.startswith(_LOCAL_OPTIONS) else 0
    while entry := _VARIABLE.match(text, at):
        at, name = entry.end(), entry[2]
        if name not in _OWN and not name.startswith(OWN_NAMES):
            found[name] = entry[0]
    if text[at:].strip():
        raise ValueError(f"not what bash prints: {text[at : at + 80]!r}")
    return found


def export_declarations(env: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The same of an environment."""
    return {
        name: b"declare -x %b=%b\n" % (name, quote(value))
        for name, value in env.items()
        if name not in _OWN
    }


def initial_state(snapshot: ShellState, env: Mapping[bytes, bytes], directory: bytes) -> ShellState:
    """The state of a session that begins with it."""
    # What the command is given anyway stays: pagers and editors that ask nothing, above all.
    variables = {**snapshot.variables, **export_declarations(env)}
    if b"PATH" in snapshot.variables:
        variables[b"PATH"] = snapshot.variables[b"PATH"]
    return msgspec.structs.replace(snapshot, variables=variables, directory=directory, begins=True)


def build_restore_script(state: ShellState, given: Iterable[bytes]) -> bytes:
    """A script after which a shell that was started with variables of these names, some of which
    may be functions, is as the one was that has left this state.
    What would change how this very script goes is left for the moment before the next one."""
    out = [b"builtin cd -- %b\n" % quote(state.directory)]
    out.append(b"builtin umask %b\n" % state.umask if state.umask else b"")
    out.append(b"builtin dirs -c\n" if state.stack else b"")
    out += [b"builtin pushd -n %b >/dev/null\n" % quote(each) for each in reversed(state.stack)]
    there = {*given} if state.begins else {*given, *_SET_BY_BASH}
    out.append(_unset(b"-f", (found[1] for name in there if (found := _FUNCTION.fullmatch(name)))))
    out.append(_unset(b"-v", sorted(there - _OWN)))
    out += [_declare(entry) for name, entry in state.variables.items() if name != _COMPAT]
    out.append(state.aliases)  # which are not expanded here
    if state.functions:
        # After the others: `declare` takes a list only where no `builtin` stands before it, and one
        # of these may be called so. What they are made of may need extglob to be read.
        # By themselves: bash prints some that it cannot read again.
        read = b"builtin eval -- %b\n" % quote(state.functions)
        out += [b"builtin shopt -s extglob\n", read, b"builtin shopt -u extglob\n"]
    if state.arguments:
        out.append(b"builtin set -- %b\n" % b" ".join(map(quote, state.arguments)))
    out.append(_shopt_lines(state))
    if _COMPAT in state.variables:  # no list, so `builtin` may stand before it
        out.append(b"builtin " + state.variables[_COMPAT])
    early = {name: words for name, words in state.traps.items() if name not in _LATE}
    out += [b"builtin trap -- %b %b\n" % (words, name) for name, words in early.items()]
    if b"expand_aliases" not in state.shopt:  # a session has it, unless it was turned off
        out.append(b"_nacre_bare=1\n")
    late = _first_line_prefix(state)
    if late:
        out.append(b"_nacre_late=%b\n" % quote(late))
    return b"".join(out)


def _declare(entry: bytes) -> bytes:
    """What changes a value as it is given comes after it: it may not have been there then."""
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
    """In front of the first line of the script, so that it has the line that it should have. Where
    that makes no sense, none of it is done; by its first words it is known whether it was."""
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
