"""Prompts of the `read` commands of a script. bash prints the prompt of `read -p` only on a
terminal, so the output of a run does not have it."""

from nacre.bash.analyze import analyze
from nacre.bash.commands import ParsedCommand

_VALUED = b"adinNptu"  # options of `read` that take a value


def find_read_prompt(script: bytes, lines: int) -> bytes:
    """Return the prompt of the `read` at which a script waits after it has read this number of
    lines; an empty text if the prompt is not known. The `read` commands of a script run in the
    order of the script, unless one of them is in a loop or in a function."""
    reads = [
        each
        for each in analyze(script).commands
        if each.name == b"read" and not (each.fed or each.substitution or _is_redirected(each))
    ]
    if any(each.loop or each.function for each in reads):
        # In a loop, the order is not known, but all reads may have the same prompt.
        prompts = {_prompt(each) for each in reads}
        return prompts.pop() if len(prompts) == 1 else b""
    return _prompt(reads[lines]) if lines < len(reads) else b""


def _is_redirected(command: ParsedCommand) -> bool:
    return any(not each.is_stdout for each in command.redirects)


def _prompt(command: ParsedCommand) -> bytes:
    """Return the prompt of `read -p PROMPT`, also in forms such as `-rp PROMPT` and `-pPROMPT`; an
    empty text if there is none, or if it is not literal."""
    words = iter(command.arguments)
    for word in words:
        text = word.text or b""
        if not text.startswith(b"-") or text in (b"-", b"--"):
            break
        for place, letter in enumerate(text[1:], 2):
            if letter not in _VALUED:
                continue
            value = text[place:] or getattr(next(words, None), "text", None) or b""
            if letter == ord("p"):
                return value
            break
    return b""
