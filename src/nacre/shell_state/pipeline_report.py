"""Bash code that reports the exit statuses of a script's pipelines to a file.

    pytest | tail; echo done            ->  pytest | tail; REPORT; echo done
    make | tail && ./test | tail        ->  { make | tail; REPORT; } && { ./test | tail; REPORT; }

The code is inserted into the script without new lines, so the line numbers in messages of bash stay
the same. The code writes nothing to stdout and stderr, needs no descriptor that a command could
inherit, starts a process only after a pipeline that failed, and leaves `$?` as it was. bash never
execs the last stage of a pipeline, so bash starts the same processes with and without the code.
"""

import re
from collections.abc import Sequence
from typing import Final

from nacre.model.plan import ReportedPipeline
from nacre.shell_state.bash_code import quote

# The unusual blanks mark the braces as nacre's own, so that `without_reports` finds them.
_OPEN: Final = b"{ \t "
_CLOSE: Final = b"; \t }"
_BEGIN: Final = b"; { _nacre_pipe="
_END: Final = b"; } 2>/dev/null"
_CODE: Final = (
    _BEGIN
    + b'"$? ${PIPESTATUS[@]}"; [[ ${_nacre_pipe#* } != *[1-9]* ]] || '
    + b'\\builtin printf "%%s\\\\n" "%d ${_nacre_pipe#* }" >>%b; '
    # A subshell sets `$?` to the exit status of the pipeline. Because of the `&&` behind it, its
    # failure does not end the shell under `set -e` and does not run a trap on ERR.
    + b'[[ $_nacre_pipe == 0\\ * ]] || (\\builtin exit "${_nacre_pipe%%%% *}") && \\builtin :'
    + _END
)
_SPECIAL_VARIABLES: Final = (
    rb"_nacre|BASH_EXECUTION_STRING|BASH_COMMAND|BASH_XTRACEFD|PIPESTATUS|\$\{?_\b|\$\{!|\bPS4\b"
)
# Parts of a script by which the script could notice the inserted code, or break it. The code of
# functions and aliases in place of builtins could break it, and so could limits and the restricted
# mode.
_COULD_NOTICE: Final = re.compile(
    b"|".join(
        (
            # traps, other builtins, and options
            rb"\b(?:trap|verbose|allexport|restricted|ulimit|enable|builtin|alias|coproc|compgen)\b",
            # `set` with the options -a, -v or -r, or with options from a variable
            rb"\bset(?:[ \t]{1,9}[-+]?\w{1,20}){0,6}[ \t]{1,9}"
            rb"(?:-\w{0,9}[avr\"'$`\\]|[\"']?\$\w*[\"']?[ \t]*(?:[;&|)\n]|\Z))",
            # programs that list processes
            rb"\b(?:ps|pgrep|pkill|top|htop|cmdline)\b",
            _SPECIAL_VARIABLES,
            # builtins that print all variables
            rb"\bset[ \t]{0,9}(?:[|;&>)\n`#'\"]|\d>|$)",
            rb"\b(?:declare|typeset|export|readonly)(?:[ \t]{1,9}[-+]\w{1,9}){0,6}[ \t]{0,9}"
            rb"(?:[|;&>)\n`#'\"]|\d>|$)",
            # `!`, which negates the exit status; a `!` in a test, as in `[ ! -e x ]`, is harmless
            rb"(?:^|[\s;&|({])(?<!\[ )(?<!\btest )!(?:\s|\\\n)",
            # A pattern such as `!(a)` is a syntax error without the option `extglob`, as is code
            # after a final backslash; the message of bash would show the inserted code.
            rb"[?*+@!]\(|\\\Z",
        )
    )
)
# Number of a pipeline, and the exit statuses of its stages.
_REPORT_LINE: Final = re.compile(rb"\d{1,6}(?: \d{1,3})+")
# The inserted code in the command line of a process, which may be cut.
_REPORT: Final = re.compile(
    rf"{re.escape(_BEGIN.decode())}.*?(?:{re.escape(_END.decode())}(?:{_CLOSE.decode()})?|$)"
)


def could_notice(script: bytes) -> bool:
    """Return whether a script could notice or break inserted code."""
    return _COULD_NOTICE.search(script) is not None


def has_special_variable(code: bytes) -> bool:
    """Return whether functions or aliases, which a script may use, read or set a variable by which
    they could notice inserted code."""
    return re.search(_SPECIAL_VARIABLES, code) is not None


def insert_reports(script: bytes, pipelines: Sequence[ReportedPipeline], path: bytes) -> bytes:
    """Return a script that reports the exit statuses of its pipelines to the file `path`."""
    parts, at = [], 0
    for number, each in enumerate(pipelines):
        if each.start is not None:
            parts += [script[at : each.start], _OPEN]
            at = each.start
        parts += [script[at : each.end], _CODE % (number, quote(path))]
        parts += [_CLOSE] if each.start is not None else []
        at = each.end
    return b"".join([*parts, script[at:]])


def parse_reports(
    text: bytes, pipelines: Sequence[ReportedPipeline]
) -> tuple[tuple[int, ...], ...]:
    """Return the exit statuses of each pipeline from the text of the file; empty for a pipeline
    without a report. Return an empty tuple if there is no report. A command could write other text
    to the file, which is ignored."""
    found: dict[int, tuple[int, ...]] = {}
    for line in text.splitlines():
        if _REPORT_LINE.fullmatch(line):
            number, *exits = map(int, line.split())
            found[number] = tuple(exits)
    statuses = tuple(
        found[number] if len(found.get(number, ())) == each.stages else ()
        for number, each in enumerate(pipelines)
    )
    return statuses if any(statuses) else ()


def without_reports(command: str) -> str:
    """Return the command line of a bash process without the inserted code."""
    return _REPORT.sub("", command).replace(_OPEN.decode(), "")
