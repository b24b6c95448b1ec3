"""Prediction of the output of simple commands such as `echo`, `printf` and `cat`, as far as it can
be known before the script runs.

nacre predicts the output of a command because the script may pass this output to a shell, as in
`echo 'rm x' | sh`.
"""

import re
from typing import Final

from nacre.bash.ansi_c import decode_ansi_c
from nacre.bash.commands import ParsedCommand

_PREDICTABLE: Final = {b"echo", b"printf", b"cat", b"tee", b"pwd", b":", b"true", b"which"}


def predict_output(command: ParsedCommand) -> bytes | None:
    """Return the text that this command would print on standard output; None if it cannot be
    predicted."""
    if command.name not in _PREDICTABLE:
        return None
    if any(each.descriptor == 1 or each.is_stdout for each in command.redirects):
        return None
    texts = [word.text for word in command.arguments]
    if any(text is None for text in texts) or any(word.glob for word in command.arguments):
        return None
    words = [text for text in texts if text is not None]
    match command.name:
        case b"echo":
            return _predict_echo(words)
        case b"printf":
            return _predict_printf(words)
        case b"cat" if not words or words == [b"-"]:
            return command.stdin
        case b"tee":
            return command.stdin
        case b"pwd" if not words and command.cwd is not None:
            return command.cwd + b"\n"
        case b"which" if len(words) == 1:
            return b"/usr/bin/" + words[0] + b"\n"
        case b":" | b"true":
            return b""
        case _:
            return None


def _predict_echo(words: list[bytes]) -> bytes | None:
    newline, escapes = b"\n", False
    while words and words[0].startswith(b"-") and words[0][1:] and not words[0][1:].strip(b"neE"):
        newline = b"" if b"n" in words[0] else newline
        escapes = b"e" in words[0]
        words = words[1:]
    text = b" ".join(words)
    if not escapes:
        return text + newline
    # Some escapes of `echo -e` differ from those of `$'...'`; output with such an escape is not
    # predicted.
    return None if re.search(rb"\\[0-7c'\"?]", text) else decode_ansi_c(text) + newline


def _predict_printf(words: list[bytes]) -> bytes | None:
    if words[:1] == [b"--"]:
        words = words[1:]
    if not words or words[0].startswith(b"-"):
        return None
    form, values = words[0], words[1:]
    holes = re.findall(rb"%[sb]", form.replace(b"%%", b""))
    pieces = re.split(rb"%[sb]", form.replace(b"%%", b"\0"))
    if any(b"%" in piece for piece in pieces):
        return None
    pieces = [decode_ansi_c(piece.replace(b"\0", b"%"), nul=True) for piece in pieces]
    if b"%b" in holes:
        if b"%s" in holes:
            return None
        values = [decode_ansi_c(value, nul=True) for value in values]
    if not holes:
        return pieces[0]
    output = b""
    count = len(holes)
    for at in range(0, max(len(values), 1), count):
        filled = [*values[at : at + count], *[b""] * count][:count]
        output += pieces[0] + b"".join(v + p for v, p in zip(filled, pieces[1:], strict=True))
    return output
