"""Recognition of commands that run other commands, such as `sudo`, `xargs` and `bash -c`.

The function `wrapped_command` finds the inner command in the words of the outer command, one level
deep. The module `nested_commands` calls `wrapped_command` again for each inner command that was
found.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from nacre.bash.commands import ParsedCommand, Word, known_prefix

SHELLS: Final = {b"bash", b"sh", b"dash", b"zsh", b"ksh", b"ash", b"rbash"}


class WrappedCommand(Struct, frozen=True, kw_only=True):
    """Inner command that a wrapper such as `sudo` or `env` would run."""

    words: tuple[Word, ...]
    directory: bytes | None = None  # working directory that the wrapper sets; None: unchanged
    given: tuple[Word, ...] = ()  # `NAME=value` assignments for the inner command
    adds: bool = False  # whether xargs appends words from its stdin to the command
    replaces: bytes | None = None  # placeholder that xargs replaces with a line of stdin


class ChildShell(Struct, frozen=True, kw_only=True):
    """Shell that a command starts, with its positional parameters."""

    positional: tuple[Word, ...] = ()
    zero: Word | None = None  # `$0` of the started shell, if the command sets it


class ScriptArgument(Struct, frozen=True, kw_only=True):
    """Script that a command such as `eval` or `bash -c` gets as arguments; the script is `words`,
    joined by blanks."""

    words: tuple[Word, ...]
    shell: ChildShell | None  # shell that runs the script; None: the current shell, as with `eval`


class ScriptOnStdin(Struct, frozen=True, kw_only=True):
    """Script that a shell reads from standard input."""

    shell: ChildShell = ChildShell()


Wrapped = WrappedCommand | ScriptArgument | ScriptOnStdin


class _Wrapper(Struct, frozen=True):
    """Option syntax of one wrapper such as `sudo`, needed to find the inner command in its
    words."""

    valued: str = ""  # letters of the wrapper's short options that take a value
    long: tuple[str, ...] = ()  # the wrapper's long options that take a value in the next word
    skips: int = 0  # number of arguments before the inner command: 1 for `timeout 5 rm x`
    assigns: bool = False  # whether `NAME=value` words may precede the inner command
    script: tuple[str, ...] = ()  # the wrapper's options whose value is a script
    directory: tuple[str, ...] = ()  # options that set the working directory of the inner command
    mark: tuple[str, ...] = ()  # options that set the placeholder of xargs
    shell: tuple[str, ...] = ()  # options that make the wrapper run the inner command in a shell
    not_with: str = ""  # letters of the short options with which the wrapper runs no command


_WRAPPERS: Final[dict[bytes, _Wrapper]] = {
    b"sudo": _Wrapper(
        "ugpCDRTUrth",
        ("user", "group", "prompt", "chdir", "chroot", "host", "role", "type", "close-from"),
        assigns=True,
        directory=("-D", "--chdir"),
        shell=("-s", "-i", "--shell", "--login"),
        not_with="elvK",
    ),
    b"doas": _Wrapper("uC"),
    b"pkexec": _Wrapper("u", ("user",)),
    b"runuser": _Wrapper(
        "ugGsw", ("user", "group", "shell"), script=("-c", "--command", "--session-command")
    ),
    b"env": _Wrapper(
        "uCS",
        ("unset", "chdir", "split-string"),
        assigns=True,
        script=("-S", "--split-string"),
        directory=("-C", "--chdir"),
    ),
    b"command": _Wrapper(not_with="vV"),
    b"builtin": _Wrapper(),
    b"exec": _Wrapper("a"),
    b"nohup": _Wrapper(),
    b"nice": _Wrapper("n", ("adjustment",)),
    b"ionice": _Wrapper("cn", ("class", "classdata"), not_with="pPu"),
    b"chrt": _Wrapper("TPD", skips=1, not_with="pm"),
    b"taskset": _Wrapper("", skips=1, not_with="p"),
    b"timeout": _Wrapper("ks", ("kill-after", "signal"), skips=1),
    b"time": _Wrapper("fo", ("format", "output")),
    b"stdbuf": _Wrapper("ioe", ("input", "output", "error")),
    b"setsid": _Wrapper(),
    b"unbuffer": _Wrapper(),
    b"fakeroot": _Wrapper("lsib", ("lib", "faked")),
    b"strace": _Wrapper("abeEoOpPsSuIX"),
    b"busybox": _Wrapper(),
    b"xargs": _Wrapper(
        "aEIdLnPs",
        ("arg-file", "delimiter", "max-args", "max-procs", "max-lines", "max-chars", "replace"),
        mark=("-I", "--replace"),
    ),
    b"chroot": _Wrapper("", ("userspec", "groups"), skips=1),
    b"flock": _Wrapper(
        "wE", ("timeout", "wait", "conflict-exit-code"), skips=1, script=("-c", "--command")
    ),
    b"watch": _Wrapper("nq", ("interval", "equexit")),
    b"script": _Wrapper("EIOoBmTt", (), skips=99, script=("-c", "--command")),
}
_FIND_RUNS: Final = {b"-exec", b"-execdir", b"-ok", b"-okdir"}


def wrapped_command(command: ParsedCommand) -> Iterator[Wrapped]:
    """Yield the inner commands and scripts that this command would run."""
    name, words = command.name, command.words
    if name is None:
        yield from _after_unknown_word(words)
    elif name in SHELLS:
        yield from _shell(words)
    elif name == b"eval":
        start = 2 if len(words) > 1 and words[1].text == b"--" else 1
        yield ScriptArgument(words=words[start:], shell=None)
    elif name == b"su":
        yield from _su(words)
    elif name == b"trap":
        yield from _trap(words)
    elif name in (b"find", b"gfind", b"bfs"):
        yield from _find(words)
    elif name in (b"fd", b"fdfind"):
        yield from _fd(words)
    elif name in (b"source", b".") and len(words) > 1:
        if words[1].text in (b"/dev/stdin", b"/proc/self/fd/0"):
            yield ScriptOnStdin(shell=ChildShell(positional=words[2:]))
        elif words[1].content is not None:
            yield _script_word(words[1], None)
    elif name in _WRAPPERS:
        yield from _find_wrapped(name, _WRAPPERS[name], words)


def _after_unknown_word(words: tuple[Word, ...]) -> Iterator[Wrapped]:
    """Yield the words after an unknown first word as a command, because in `$SUDO rm ...` the first
    word may expand to nothing."""
    if len(words) > 1 and words[0].bare and not words[0].prefix:
        yield WrappedCommand(words=words[1:])


class _WrapperOptions(Struct):
    """Parsed options of one wrapper command, such as those of `sudo -u bob rm x`."""

    at: int = 1  # index of the first word after the wrapper's options
    directory: bytes | None = None
    script: Word | None = None
    mark: bytes | None = None  # placeholder of `xargs -I`
    shell: bool = False  # whether the wrapper runs its command in a shell, as `sudo -s` does
    nothing: bool = False  # whether the wrapper runs no command, as in `command -v rm`


def _find_wrapped(name: bytes, wrapper: _Wrapper, words: tuple[Word, ...]) -> Iterator[Wrapped]:
    options = _parse_options(name, wrapper, words)
    if options.nothing:
        return
    if options.script is not None:
        # `env -S 'rm -f' x` runs `rm -f x`: the words after the string belong to the script
        splits = name == b"env"
        yield ScriptArgument(
            words=(options.script, *words[options.at :]) if splits else (options.script,),
            shell=ChildShell(),
        )
        return
    rest = words[options.at + wrapper.skips :]
    if name == b"flock" and rest and rest[0].text in (b"-c", b"--command"):
        yield ScriptArgument(words=rest[1:2], shell=ChildShell())
    elif rest and options.shell:
        yield ScriptArgument(words=rest, shell=ChildShell())
    elif rest:
        given = tuple(
            each for each in words[1 : options.at] if wrapper.assigns and b"=" in each.prefix
        )
        yield WrappedCommand(
            words=rest,
            directory=options.directory,
            adds=name == b"xargs" and options.mark is None,
            replaces=options.mark,
            given=given,
        )
    elif options.shell and name != b"watch":
        yield ScriptOnStdin()


def _parse_options(name: bytes, wrapper: _Wrapper, words: tuple[Word, ...]) -> _WrapperOptions:
    options = _WrapperOptions(shell=name == b"watch")
    while options.at < len(words):
        text = known_prefix(words[options.at])
        if text == b"--":
            options.at += 1
            break
        assigns = wrapper.assigns and b"=" in text and not text.startswith((b"-", b"/"))
        if assigns or (text == b"!" and name == b"time"):
            options.at += 1
            continue
        if not text.startswith(b"-") or (text == b"-" and name != b"env"):
            break
        option, value, count = _option(words, options.at, wrapper)
        options.at += count
        options.nothing = options.nothing or (
            option[:2] != "--" and option[1:2] in [*wrapper.not_with]
        )
        if option in wrapper.script:
            options.script = value
        elif option in wrapper.directory and value is not None:
            options.directory = value.text
        elif option in wrapper.mark and value is not None:
            options.mark = value.text
        elif option in wrapper.shell:
            options.shell = True
        elif option in ("-x", "--exec") and name == b"watch":
            options.shell = False
        if options.script is not None and name == b"env":
            break
    return options


def _option(words: tuple[Word, ...], at: int, wrapper: _Wrapper) -> tuple[str, Word | None, int]:
    """Parse the option at index `at` of a wrapper command such as `sudo -u bob rm x`; return the
    option's name, its value, and the number of words that the option occupies."""
    word = words[at]
    text = known_prefix(word).decode("latin-1")
    following = words[at + 1] if at + 1 < len(words) else None
    if text.startswith("--"):
        option, equals, value = text.partition("=")
        if equals:
            known = None if word.text is None else value.encode("latin-1")
            return option, Word(start=word.start, end=word.end, text=known), 1
        takes = option[2:] in wrapper.long or option in wrapper.script
        return option, following if takes else None, 2 if takes else 1
    scripted = {each[1] for each in wrapper.script if not each.startswith("--")}
    for place, letter in enumerate(text[1:], 1):
        if letter in wrapper.valued or letter in scripted:
            glued = text[place + 1 :]
            if glued:
                rest = Word(start=word.start, end=word.end, text=glued.encode("latin-1"))
                return f"-{letter}", rest, 1
            return f"-{letter}", following, 2
        if letter in wrapper.not_with:
            return f"-{letter}", None, 1
    return text, None, 1


def _shell(words: tuple[Word, ...]) -> Iterator[Wrapped]:
    at, reads, from_input = 1, False, False
    while at < len(words):
        text = words[at].text
        if text is None or not text.startswith((b"-", b"+")):
            break
        at += 1
        if text in (b"-", b"--"):
            break
        if text.startswith(b"--"):
            at += text in (b"--rcfile", b"--init-file")
            continue
        if text.startswith(b"-") and b"n" in text[1:]:
            return  # `bash -n` only checks the syntax
        if text.endswith((b"o", b"O")):
            at += 1
        reads = reads or (b"c" in text[1:] and text.startswith(b"-"))
        from_input = from_input or (b"s" in text[1:] and text.startswith(b"-"))
    rest = words[at:]
    if reads:
        if rest:
            zero = rest[1] if len(rest) > 1 else None
            yield ScriptArgument(words=rest[:1], shell=ChildShell(positional=rest[2:], zero=zero))
    elif from_input:
        yield ScriptOnStdin(shell=ChildShell(positional=rest))
    elif not rest or rest[0].text in (b"/dev/stdin", b"-"):
        yield ScriptOnStdin(shell=ChildShell(positional=rest[1:]))
    elif rest[0].content is not None:  # the script is a command's output: `bash <(echo ...)`
        yield _script_word(rest[0], ChildShell(positional=rest[1:]))


def _script_word(word: Word, shell: ChildShell | None) -> ScriptArgument:
    script = Word(start=word.start, end=word.end, text=word.content)
    return ScriptArgument(words=(script,), shell=shell)


def _su(words: tuple[Word, ...]) -> Iterator[Wrapped]:
    """Yield the script of `su - bob -c SCRIPT`, where the option `-c` may come in any position."""
    for at, word in enumerate(words):
        text = word.text or b""
        if text in (b"-c", b"--command", b"--session-command") and at + 1 < len(words):
            yield ScriptArgument(words=words[at + 1 : at + 2], shell=ChildShell())
            return
        if text.startswith(b"--command="):
            value = text.partition(b"=")[2]
            yield ScriptArgument(
                words=(Word(start=word.start, end=word.end, text=value),), shell=ChildShell()
            )
            return
    yield ScriptOnStdin()


def _trap(words: tuple[Word, ...]) -> Iterator[Wrapped]:
    rest = words[1:]
    if rest and rest[0].text == b"--":
        rest = rest[1:]
    if len(rest) > 1 and rest[0].text not in (b"-", b"", b"-p", b"-l"):
        yield ScriptArgument(words=rest[:1], shell=None)


def _find(words: tuple[Word, ...]) -> Iterator[Wrapped]:
    for at, word in enumerate(words):
        if word.text in _FIND_RUNS:
            rest = words[at + 1 :]
            ends = next(
                (
                    i
                    for i, each in enumerate(rest)
                    if each.text == b";" or (each.text == b"+" and i and rest[i - 1].text == b"{}")
                ),
                len(rest),
            )
            if ends:
                yield WrappedCommand(words=_with_unknown_file(rest[:ends]))


def _fd(words: tuple[Word, ...]) -> Iterator[Wrapped]:
    for at, word in enumerate(words):
        if word.text in (b"-x", b"--exec", b"-X", b"--exec-batch") and at + 1 < len(words):
            yield WrappedCommand(words=_with_unknown_file(words[at + 1 :]))
            return


def _with_unknown_file(words: Sequence[Word]) -> tuple[Word, ...]:
    """Replace each word that contains `{}` by an unknown word, because the name of the found file
    is known only when `find` or `fd` runs."""
    return tuple(
        Word(start=each.start, end=each.end) if each.text and b"{}" in each.text else each
        for each in words
    )
