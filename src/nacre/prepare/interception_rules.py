"""Interception rules of the `pi` contract: commands that another tool of the agent does better.

Each interception rule checks one command and, on a match, returns the arguments for the tool that
it suggests.
"""

import re
from collections.abc import Callable
from itertools import zip_longest
from typing import Final

import msgspec

from nacre.bash.commands import ParsedCommand, Redirect, Word, known_prefix
from nacre.bash.predicted_output import predict_output
from nacre.prepare.interception import Arguments, FindArguments, InterceptionRule
from nacre.prepare.option_parsing import NONE, find_flags, find_operands, has_flag
from nacre.text.clean import decode

# Options of `head`, `tail`, search programs and `fd` that take the next word as their value.
_COUNTS: Final = frozenset({b"-n", b"-c", b"--lines", b"--bytes"})
_SEARCH_VALUED: Final = frozenset(
    {b"-A", b"-B", b"-C", b"-e", b"-f", b"-g", b"-m", b"-t", b"-T", b"--regexp", b"--file"}
    | {b"--glob", b"--type", b"--max-count", b"--context", b"--after-context", b"--include"}
    | {b"--before-context", b"--exclude", b"--exclude-dir"}
)
_FD_VALUED: Final = frozenset(
    {b"-t", b"-e", b"-d", b"-E", b"-c", b"-j", b"--type", b"--extension", b"--max-depth"}
)
_FIND_ACTS: Final = {
    *(b"-delete", b"-exec", b"-execdir", b"-ok", b"-okdir", b"-fprint", b"-fprintf", b"-fls"),
}
_FIND_ASKS: Final = {
    *(b"-name", b"-iname", b"-type", b"-path", b"-ipath", b"-wholename", b"-regex", b"-iregex"),
}
_NOT_FILES: Final = (b"/dev/", b"/proc/", b"/sys/")


def _read(command: ParsedCommand) -> Arguments | None:
    if _keeps_its_output(command):
        return None
    if command.name == b"tail" and has_flag(command.arguments, b"fF", b"--follow", b"--retry"):
        return None
    if any(known_prefix(word).startswith(b"+F") for word in command.arguments):
        return None
    valued = _COUNTS if command.name in (b"head", b"tail") else NONE
    files = [*find_operands(command.arguments, valued)]
    files = [word for word in files if not _is_count(word)]
    if any(word.text == b"-" for word in files):
        return None
    files += [each.target for each in command.redirects if _is_input(each) and not files]
    if not files or any(_is_device(word) for word in files):
        return None
    arguments = _path(files[0])
    count = _count(command) if command.name == b"head" else None
    return arguments if count is None else arguments | {"limit": count}


def _search(command: ParsedCommand) -> Arguments | None:
    if _keeps_its_output(command):
        return None
    given = [*find_flags(command.arguments, _SEARCH_VALUED)]
    named = any(each.name in (b"-e", b"--regexp", b"-f", b"--file") for each in given)
    words = [*find_operands(command.arguments, _SEARCH_VALUED)]
    patterns = [_after(command, b"-e", b"--regexp")] if named else words[:1]
    where = words if named else words[1:]
    recursive = command.name not in (b"grep", b"egrep", b"fgrep") or has_flag(
        command.arguments, b"rR", b"--recursive", b"--dereference-recursive"
    )
    where += [each.target for each in command.redirects if _is_input(each)]
    if not (patterns and (where or recursive)) or any(map(_is_device, where)):
        return None
    if any(word.text == b"-" for word in where):
        return None
    pattern = {} if patterns[0] is None else _text("pattern", patterns[0])
    return pattern | (_path(where[0]) if where else {})


def _find(command: ParsedCommand) -> Arguments | None:
    texts = {known_prefix(word) for word in command.arguments}
    if _FIND_ACTS & texts or not _FIND_ASKS & texts:
        return None
    starts = [each for each in command.arguments if each.text not in (b"-L", b"-H", b"-P")]
    start = starts[0] if starts and not known_prefix(starts[0]).startswith(b"-") else None
    return _search_arguments(command, _after(command, *_FIND_ASKS - {b"-type"}), start)


def _fd(command: ParsedCommand) -> Arguments | None:
    texts = {known_prefix(word) for word in command.arguments}
    if {b"-x", b"--exec", b"-X", b"--exec-batch"} & texts:
        return None
    if not has_flag(command.arguments, b"tge", b"--type", b"--glob", b"--extension"):
        return None
    words: list[Word | None] = [*find_operands(command.arguments, _FD_VALUED), None, None]
    return _search_arguments(command, words[0], words[1])


def _locate(command: ParsedCommand) -> Arguments | None:
    texts = [known_prefix(word) for word in command.arguments]
    if not any(b"*" in text or text.startswith((b"-b", b"--basename", b"-r")) for text in texts):
        return None
    words = [*find_operands(command.arguments, frozenset({b"-d", b"-l", b"-n"}))]
    return _search_arguments(command, words[0] if words else None, None)


def _search_arguments(
    command: ParsedCommand, pattern: Word | None, start: Word | None
) -> Arguments | None:
    """Return the arguments for the agent's find tool (file name pattern and start directory);
    return None if the find tool cannot replace the command."""
    if _keeps_its_output(command) or (start is not None and _is_device(start)):
        return None
    arguments = {} if pattern is None else _text("pattern", pattern)
    return arguments | ({} if start is None else _path(start))


def _edit(command: ParsedCommand) -> Arguments | None:
    name, words = command.name, command.arguments
    texts = [word.text or word.prefix for word in words]
    if name in (b"sed", b"gsed"):
        before = texts[: texts.index(b"--")] if b"--" in texts else texts
        hit = any(
            (len(text) > 3 and b"--in-place".startswith(text.partition(b"=")[0]))
            or (_letters(text, b"nrEsuzle") and b"i" in text)
            for text in before
        )
    elif name == b"perl":
        hit = _perl_edits(texts)
    else:  # the program is awk, gawk or mawk
        hit = (
            any(
                text == b"-iinplace"
                or (text in (b"-i", b"--include") and following.startswith(b"inplace"))
                for text, following in zip_longest(texts, texts[1:], fillvalue=b"")
            )
            or b"--include=inplace" in texts
        )
    if not hit:
        return None
    last = [word for word in words if not known_prefix(word).startswith(b"-")][-1:]
    return _path(last[0]) if last else {}


def _letters(text: bytes, allowed: bytes) -> bool:
    """Return whether a word bundles short options, as `-ni` does, and all its letters before the
    first `i` are in `allowed`."""
    if not text.startswith(b"-") or text.startswith(b"--") or len(text) < 2:
        return False
    before = text[1:].split(b"i")[0]
    return all(byte in allowed for byte in before)


def _perl_edits(texts: list[bytes]) -> bool:
    """Return whether a perl command edits files in place (`-i`); perl's switches end at the
    script's name."""
    skip = False
    for text in texts:
        if skip:
            skip = False
            continue
        if not text.startswith(b"-") or text.startswith(b"--") or text == b"-":
            return False
        switches = re.match(rb"-((?:[aclnpsStTuUvwWX0-9]|C[A-Z0-9]*)*)(.?)", text)
        assert switches is not None
        if switches[2] == b"i":
            return True
        skip = switches[2] in (b"e", b"E", b"I", b"M", b"m") and switches.end() == len(text)
    return False


def _write(command: ParsedCommand) -> Arguments | None:
    feeds_text = any(each.operator in (b"<<", b"<<<") for each in command.redirects)
    if command.name == b"cat" and not feeds_text:
        return None
    targets = [each for each in command.redirects if each.is_stdout and _is_file(each)]
    if not targets:
        return None
    arguments = _path(targets[-1].target)
    body = command.stdin if command.name == b"cat" else _written_text(command)
    if body is not None and targets[-1].operator not in (b">>", b"&>>"):
        arguments |= {"content": decode(body)}
    return arguments


def _tee(command: ParsedCommand) -> Arguments | None:
    """Match a command such as `echo x | tee f`, which writes a file. The interception rule for
    `tee` does not match `make | tee log`, because the file's content comes from another program
    than `echo`, `printf` or `cat`."""
    feeder = command.feeder
    if feeder is None or feeder.name not in (b"echo", b"printf", b"cat"):
        return None
    if feeder.name == b"cat" and feeder.stdin is None:
        return None
    files = [word for word in find_operands(command.arguments) if not _is_device(word)]
    if not files:
        return None
    body = command.stdin
    if body is None or has_flag(command.arguments, b"a", b"--append"):
        return _path(files[0])
    return _path(files[0]) | {"content": decode(body)}


def _is_file(redirect: Redirect) -> bool:
    return not _is_device(redirect.target)


def _keeps_its_output(command: ParsedCommand) -> bool:
    """Return whether the command's stdout goes to a file, so that the model does not read the
    output."""
    return any(each.is_stdout for each in command.redirects)


def _is_input(redirect: Redirect) -> bool:
    return redirect.operator == b"<" and redirect.descriptor == 0


def _is_device(word: Word) -> bool:
    texts = (*word.texts, word.prefix)
    return any((text.rstrip(b"/") + b"/").startswith(_NOT_FILES) for text in texts if text)


def _written_text(command: ParsedCommand) -> bytes | None:
    return predict_output(msgspec.structs.replace(command, redirects=()))


def _is_count(word: Word) -> bool:
    return bool(word.text) and (word.text or b"")[:1] == b"+"


def _count(command: ParsedCommand) -> int | None:
    texts = [word.text or b"" for word in command.arguments]
    for text, following in zip_longest(texts, texts[1:], fillvalue=b""):
        for shape, value in (
            (rb"-(\d+)", text),
            (rb"-n(\d+)", text),
            (rb"--lines=(\d+)", text),
            (rb"(\d+)", following if text in (b"-n", b"--lines") else b""),
        ):
            found = re.fullmatch(shape, value)
            if found:
                return int(found[1][:9])
    return None


def _after(command: ParsedCommand, *options: bytes) -> Word | None:
    """Return the value of the command's first option that is in `options`: the word after that
    option."""
    for word, following in zip(command.arguments, command.arguments[1:], strict=False):
        if word.text in options:
            return following
    return None


def _path(word: Word) -> Arguments:
    return _text("path", word)


def _text(key: str, word: Word) -> Arguments:
    return {} if word.text is None else {key: decode(word.text)}


def _about(looks: dict[bytes, Callable[[ParsedCommand], Arguments | None]]) -> FindArguments:
    """Combine the checks in `looks`, a map from program name to check, into one function that
    checks a command."""

    def look(command: ParsedCommand, script: bytes) -> Arguments | None:
        del script
        mine = looks.get(command.name or b"")
        return None if mine is None else mine(command)

    return look


DEFAULT_RULES: Final = (
    InterceptionRule(
        id="write",
        tool="write",
        message="use the write tool to make a file; it takes the content as it is, without quoting",
        find_arguments=_about(
            dict.fromkeys(
                (
                    b"echo",
                    b"printf",
                    b"cat",
                ),
                _write,
            )
        ),
    ),
    InterceptionRule(
        id="write-tee",
        tool="write",
        message="use the write tool to make a file; it takes the content as it is, without quoting",
        find_arguments=_about(dict.fromkeys((b"tee",), _tee)),
    ),
    InterceptionRule(
        id="read",
        tool="read",
        message="use the read tool to look at a file; it shows line numbers and takes ranges",
        find_arguments=_about(
            dict.fromkeys(
                (
                    b"cat",
                    b"head",
                    b"tail",
                    b"less",
                    b"more",
                ),
                _read,
            )
        ),
    ),
    InterceptionRule(
        id="search",
        tool="search",
        message="use the search tool to find text in files; it respects .gitignore",
        find_arguments=_about(
            dict.fromkeys(
                (
                    b"grep",
                    b"egrep",
                    b"fgrep",
                    b"rg",
                    b"ripgrep",
                    b"ag",
                    b"ack",
                ),
                _search,
            )
        ),
    ),
    InterceptionRule(
        id="find",
        tool="find",
        message="use the find tool to find files by name",
        find_arguments=_about({b"find": _find, b"fd": _fd, b"fdfind": _fd, b"locate": _locate}),
    ),
    InterceptionRule(
        id="edit",
        tool="edit",
        message="use the edit tool to change a file; it shows what it changed",
        find_arguments=_about(
            dict.fromkeys(
                (
                    b"sed",
                    b"gsed",
                    b"perl",
                    b"awk",
                    b"gawk",
                    b"mawk",
                ),
                _edit,
            )
        ),
    ),
)
