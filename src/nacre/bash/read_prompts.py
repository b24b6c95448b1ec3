"""Prompts of the `read` commands of a script. bash prints the prompt of `read -p` only on a
terminal, so the output of a run does not have it."""

from nacre.bash import lexer, syntax_tree
from nacre.bash.analyze import analyze
from nacre.bash.commands import ParsedCommand, Word
from nacre.bash.syntax_tree import Chain, Group, If, Loop, Node, Redirected, Sequence, Simple
from nacre.bash.tokens import TooComplex

_VALUED = b"adinNptu"  # options of `read` that take a value
# Commands that read lines of the script's stdin, as `read` does.
_OTHER_READERS = (b"mapfile", b"readarray", b"head", b"line", b"sed")


def find_first_prompt(script: bytes) -> bytes:
    """Return the prompt of the first `read` of a script, if the script runs this `read` in any case
    and gives it no other stdin; else an empty text."""
    if any(each.name == b"exec" and _is_redirected(each) for each in analyze(script).commands):
        return b""
    certain = _unconditional_commands(script)
    for each in _find_reads(script):
        is_certain = any(node.start <= each.start < node.end for node in certain)
        return _prompt(each, script) if is_certain and b"u" not in _options(each) else b""
    return b""


def is_single_command(script: bytes) -> bool:
    """Return whether a script runs one command and nothing else."""
    return len(analyze(script).commands) == 1


def find_read_prompt(script: bytes, lines: int | None) -> bytes:
    """Return the prompt of the `read` at which a script waits after it has read this number of
    lines (None: the number is not known); an empty text if the prompt is not known."""
    commands = analyze(script).commands
    reads = _find_reads(script)
    # A function that is called is analyzed once without its arguments, which does not count, and
    # once for each call.
    called = {each.start for each in reads if each.via}
    reads = [each for each in reads if each.via or each.start not in called]
    is_ordered = not any(each.loop or each.function or _reads_no_line(each) for each in reads)
    if (
        lines is not None
        and is_ordered
        and not any(each.name in _OTHER_READERS for each in commands)
    ):
        reads = _reads_after(reads, lines, _unconditional_commands(script))
    # Of several reads that the script may have reached, all may have the same prompt.
    for source in (False, True):
        prompts = {_prompt(each, script, source=source) for each in reads}
        if len(prompts) == 1:
            return prompts.pop()
    return b""


def _find_reads(script: bytes) -> list[ParsedCommand]:
    """Return the `read` commands of a script that read the script's own stdin."""
    return [
        each
        for each in analyze(script).commands
        if each.name == b"read" and not (each.fed or each.substitution or _is_redirected(each))
    ]


def _reads_after(
    reads: list[ParsedCommand], lines: int, unconditional: list[Simple]
) -> list[ParsedCommand]:
    """Return the reads that a script may have reached after it has read this number of lines. The
    script runs its reads in order, and may skip those that are not `unconditional`."""
    found, certain = [], 0  # `certain`: number of earlier reads that the script cannot skip
    for number, each in enumerate(reads):
        if number >= lines and certain <= lines:
            found.append(each)
        certain += any(node.start <= each.start < node.end for node in unconditional)
    return found


def _unconditional_commands(script: bytes) -> list[Simple]:
    """Return the commands that a script runs in any case, unless it ends before."""
    try:
        frame = lexer.tokenize(script)
        structure, _ = syntax_tree.parse(frame.skeleton, frame.start, frame.lines)
    except (TooComplex, RecursionError):
        return []
    found: list[Simple] = []
    rest: list[Node] = [structure]
    while rest:
        match rest.pop():
            case Sequence(items=items, background=background):
                rest += [each for number, each in enumerate(items) if number not in background]
            case Chain(left=left):
                rest.append(left)
            case Group(body=body) | Redirected(body=body):
                rest.append(body)
            case If(arms=[(condition, _), *_]) | Loop(condition=Sequence() as condition):
                rest.append(condition)
            case Simple() as node:
                found.append(node)
    return found


def _reads_no_line(command: ParsedCommand) -> bool:
    """Return whether a `read` may read less or more than one line, or stop waiting."""
    return any(letter in _options(command) for letter in b"nNdtu")


def _options(command: ParsedCommand) -> bytes:
    """Return the words of a command that are options, joined."""
    return b"".join(word.text or b"" for word in command.arguments if _is_option(word))


def _is_option(word: Word) -> bool:
    return (word.text or b"").startswith(b"-")


def _is_redirected(command: ParsedCommand) -> bool:
    return any(not each.is_stdout for each in command.redirects)


def _prompt(command: ParsedCommand, script: bytes, *, source: bool = False) -> bytes:
    """Return the prompt of `read -p PROMPT`, also in forms such as `-rp PROMPT` and `-pPROMPT`; an
    empty text if there is none. A prompt with unknown parts, and with `source` any prompt, is
    returned as the script has it, for example `Password of $1: `."""
    words = iter(command.arguments)
    for word in words:
        text = word.text or b""
        if not text.startswith(b"-") or text in (b"-", b"--"):
            break
        for index, letter in enumerate(text[1:], 2):
            if letter not in _VALUED:
                continue
            value = None if text[index:] else next(words, None)
            if letter == ord("p"):
                return text[index:] or _text_of(value, command, script, source=source)
            break
    return b""


def _text_of(word: Word | None, command: ParsedCommand, script: bytes, *, source: bool) -> bytes:
    if word is None or not (source or word.text is None) or not command.exact:
        return b"" if word is None else word.text or b""
    text = script[word.start : word.end]
    return text[1:-1] if text[:1] == text[-1:] == b'"' and len(text) > 1 else text
