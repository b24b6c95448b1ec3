"""Bash code that reports the exit statuses of the script's last pipeline to a file.

The code is appended to the script on a line of its own, so it runs only after the script's last
command, and only if the script has not exited before. The code writes nothing to stdout and stderr,
needs no descriptor that a command could inherit, and exits with the exit status of the script. For
a script whose last command is a pipeline, bash starts the same processes with and without the code:
bash never execs the last command of such a script.
"""

from typing import Final

from nacre.shell_state.bash_code import quote

_BEGIN: Final = b'\n{ _nacre_pipe="$? ${PIPESTATUS[@]}"; '
# With the shell option `xtrace`, bash would print the appended commands to stderr or to
# BASH_XTRACEFD.
_QUIETLY: Final = b"2>/dev/null {BASH_XTRACEFD}>/dev/null"


def build_report(path: bytes) -> bytes:
    """Return bash code that writes the exit statuses to the file `path` if one of them is not 0."""
    return (
        _BEGIN
        + b"[[ ${_nacre_pipe#* } != *[1-9]* ]] || "
        + b'\\builtin printf %%s "${_nacre_pipe#* }" >|%b; ' % quote(path)
        + b'\\builtin exit "${_nacre_pipe%% *}"; } '
        + _QUIETLY
    )


def parse_report(text: bytes) -> tuple[int, ...]:
    """Return the exit statuses from the text of the file; an empty tuple for an invalid text."""
    words = text.split()
    return tuple(map(int, words)) if words and all(each.isdigit() for each in words) else ()


def without_report(command: str) -> str:
    """Return the command line of a bash process without the appended code."""
    return command.partition(_BEGIN.decode().replace("\n", " "))[0].partition(_BEGIN.decode())[0]
