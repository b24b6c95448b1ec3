"""The preparation step `note_terminal_needs`: reports commands that need a terminal or open an
editor."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from nacre.bash.commands import (
    Analysis,
    Assignment,
    ParsedCommand,
    Word,
    known_prefix,
    program_name,
)
from nacre.model.caller import Caller
from nacre.model.findings import NeedsTerminal
from nacre.model.plan import Plan
from nacre.prepare.decide import add_findings
from nacre.prepare.git_command import COMMIT_VALUED, GitCommand, parse_git
from nacre.prepare.option_parsing import find_flags, find_operands
from nacre.prepare.plan_analysis import analyze_plan
from nacre.text.clean import decode

_EDITORS: Final = {
    *(
        b"vi",
        b"vim",
        b"nvim",
        b"view",
        b"vimdiff",
        b"gvim",
        b"nano",
        b"pico",
        b"emacs",
        b"joe",
        b"micro",
    ),
    *(b"hx", b"helix", b"kak", b"mcedit", b"ne", b"jed", b"vipw", b"vigr", b"visudo", b"sudoedit"),
}
_ASKS_ABOUT_CHANGES: Final = "it asks about each change"
_PAGERS: Final = {b"less", b"more", b"most"}
_SCREENS: Final = {
    *(
        b"top",
        b"htop",
        b"btop",
        b"atop",
        b"glances",
        b"iotop",
        b"iftop",
        b"nethogs",
        b"nvtop",
        b"watch",
    ),
    *(
        b"tig",
        b"lazygit",
        b"gitui",
        b"lazydocker",
        b"k9s",
        b"ncdu",
        b"ranger",
        b"nnn",
        b"lf",
        b"yazi",
        b"mc",
    ),
    *(
        b"nmtui",
        b"alsamixer",
        b"cfdisk",
        b"dialog",
        b"whiptail",
        b"fzf",
        b"mutt",
        b"irssi",
        b"w3m",
        b"lynx",
    ),
}
_LOOKS: Final = {b"--version", b"--help", b"-h", b"-V", b"-?"}
_BATCH: Final[dict[bytes, tuple[bytes, ...]]] = {
    b"top": (b"-b",),
    b"atop": (b"-w", b"-r", b"-P"),
    b"iotop": (b"-b",),
    b"glances": (b"--stdout", b"--export", b"-s"),
    b"emacs": (b"--batch", b"-batch", b"--script"),
    b"lynx": (b"-dump", b"--dump", b"-source"),
    b"w3m": (b"-dump", b"-dump_source"),
    b"fzf": (b"-f", b"--filter"),
    b"ncdu": (b"-o",),
    b"visudo": (b"-c", b"--check"),
}
_EDITOR_NAMES: Final = {
    *(b"EDITOR", b"VISUAL", b"GIT_EDITOR", b"GIT_SEQUENCE_EDITOR", b"KUBE_EDITOR"),
}
_HAS_MESSAGE: Final = {
    *(b"-m", b"-F", b"-C", b"--message", b"--file", b"--reuse-message", b"--no-edit", b"--fixup"),
    *(b"--dry-run", b"--short", b"--porcelain", b"--long", b"-h", b"--help", b"--squash"),
}
_LONG: Final = frozenset(
    {each for each in _HAS_MESSAGE if each.startswith(b"--")}
    | {b"--interactive", b"--patch", b"--edit-todo", b"--edit"}
)
# Options of `docker run` and `docker exec` that take the next word as their value.
_DOCKER_VALUED: Final = frozenset(
    {b"-v", b"-e", b"-p", b"-w", b"-u", b"-h", b"-m", b"-l", b"-c", b"-n", b"--name", b"--network"}
    | {b"--volume", b"--env", b"--publish", b"--workdir", b"--user", b"--entrypoint", b"--mount"}
    | {b"--env-file", b"--platform", b"--hostname", b"--memory", b"--cpus", b"--namespace"}
)
_SSH_VALUED: Final = frozenset(b"-" + bytes([letter]) for letter in b"BbcDEeFIiJLlmOopQRSWw")
_QUIET: Final = Word(start=0, end=0, text=b"true")
_PATCHES: Final = {b"add", b"stage", b"checkout", b"restore", b"reset", b"stash", b"commit"}


def note_terminal_needs(plan: Plan, caller: Caller) -> Plan:
    """Add a finding for each command that cannot work without a terminal, so that the tool's
    contract can suggest a command that works."""
    # A command that asks about each change reads the answers from stdin, which needs no terminal.
    answered = plan.stdin is not None
    found = [
        each
        for each in find_terminal_needs(analyze_plan(plan, caller))
        if not (answered and each.why == _ASKS_ABOUT_CHANGES)
    ]
    return add_findings(plan, *found) if found else plan


def find_terminal_needs(reading: Analysis) -> Iterator[NeedsTerminal]:
    """Yield a finding for each command in a script that needs a terminal or an editor."""
    exported: set[bytes] = set()  # names of the variables that the script exports
    defined = {each.name for each in reading.functions}
    for command in reading.commands:
        if command.name in defined:
            continue  # a function of the script
        if command.name in (b"export", b"declare"):
            exported |= {known_prefix(word).partition(b"=")[0] for word in command.arguments}
        if exported & _EDITOR_NAMES:
            chosen = Assignment(name=b"EDITOR", value=_QUIET, start=0, end=0)
            command = msgspec.structs.replace(command, assignments=(*command.assignments, chosen))
        found = _need(command)
        if found is not None:
            why, instead = found
            words = b" ".join(word.text or b"?" for word in command.words)
            yield NeedsTerminal(words=decode(words), why=why, instead=instead)


def _need(command: ParsedCommand) -> tuple[str, str] | None:
    name = command.name
    if name is None:
        return None
    texts = {word.text for word in command.arguments}
    if name in _EDITORS | _PAGERS | _SCREENS and texts & _LOOKS:
        return None
    if name in _EDITORS:
        return _editor(command, texts)
    if name in _PAGERS:
        if command.feeds or any(each.is_stdout for each in command.redirects):
            return None
        return "it pages for a person", "use cat, head or sed -n"
    if name in _SCREENS:
        if _is_batch(name, command):
            return None
        return "it draws on a terminal", _screen_remedy(name)
    if name == b"git":
        return _git(command)
    return _other(command, texts)


def _is_batch(name: bytes, command: ParsedCommand) -> bool:
    wanted = _BATCH.get(name, ())
    for word in command.arguments:
        text = word.text or word.prefix
        if text in wanted or text.partition(b"=")[0] in wanted:
            return True
        letters = [each[1:] for each in wanted if len(each) == 2]
        bundle = text.startswith(b"-") and not text.startswith(b"--")
        if bundle and any(letter in text for letter in letters):
            return True
    return False


def _screen_remedy(name: bytes) -> str:
    return {
        b"top": "use top -b -n 1, or ps aux --sort=-%cpu",
        b"htop": "use top -b -n 1, or ps aux --sort=-%cpu",
        b"watch": "run the command itself, once or in a loop that ends",
        b"fzf": "use fzf --filter, or grep",
    }.get(name, "use a program that prints and ends")


def _editor(command: ParsedCommand, texts: set[bytes | None]) -> tuple[str, str] | None:
    if _is_batch(command.name or b"", command):
        return None
    # In silent mode (`-es`), vim runs a script and draws nothing.
    if any(
        text and text.startswith(b"-") and b"s" in text and b"e" in text.lower() for text in texts
    ):
        return None
    return "it is an editor for a person", "write the file with a heredoc, or change it with sed -i"


def _git(command: ParsedCommand) -> tuple[str, str] | None:
    found = parse_git(command)
    if found is None:
        return None
    names = {flag.name for flag in find_flags(found.arguments, COMMIT_VALUED, _LONG)}
    if b"--help" in names:
        return None
    if found.subcommand in _PATCHES and _asks_for_patches(found, names):
        return _ASKS_ABOUT_CHANGES, "name the files, or git apply a patch"
    if found.subcommand == b"rebase" and names & {b"-i", b"--interactive", b"--edit-todo"}:
        if _chooses_editor(command, found, b"sequence.editor"):
            return None
        return (
            "it opens a list of commits in an editor",
            "give the edit in the command: GIT_SEQUENCE_EDITOR='sed -i …' git rebase -i",
        )
    if found.subcommand == b"commit" and not names & _HAS_MESSAGE:
        if _chooses_editor(command, found, b"core.editor"):
            return None
        return "it opens an editor for the message", "give the message with -m or -F"
    edits = [word.text for word in found.arguments[:1]] == [b"edit"]
    if found.subcommand == b"config" and (names & {b"-e", b"--edit"} or edits):
        return "it opens an editor", "give name and value"
    if found.subcommand == b"tag" and names & {b"-a", b"-s"} and not names & _HAS_MESSAGE:
        return "it opens an editor for the message", "give the message with -m"
    return None


def _asks_for_patches(found: GitCommand, names: set[bytes]) -> bool:
    if found.arguments[:1] and found.arguments[0].text in (b"show", b"list"):
        return False  # `git stash show -p` only prints a patch and asks nothing
    interactive = b"-i" in names and found.subcommand in (b"add", b"stage")
    return interactive or bool(names & {b"-p", b"--patch", b"--interactive"})


def _chooses_editor(command: ParsedCommand, found: GitCommand, setting: bytes) -> bool:
    for assignment in command.assignments:
        if assignment.name in _EDITOR_NAMES:
            return program_name((assignment.value,)) not in _EDITORS
    if b"env" in command.via:
        return True
    return any(word.prefix.lower().startswith(setting + b"=") for word in found.settings)


def _other(command: ParsedCommand, texts: set[bytes | None]) -> tuple[str, str] | None:
    name = command.name
    if name == b"ssh" and _own_flags(command.arguments, _SSH_VALUED) & {b"-t"}:
        return "it asks for a terminal", "leave -t out, and give the remote command"
    if name in (b"docker", b"podman", b"nerdctl", b"kubectl", b"oc"):
        verbs = {b"exec", b"run", b"attach"}
        at = next((i for i, w in enumerate(command.arguments) if w.text in verbs), None)
        if at is not None:
            own = _own_flags(command.arguments[at + 1 :], _DOCKER_VALUED)
            terminal = own & {b"-t", b"--tty"} or command.arguments[at].text == b"attach"
            if terminal and not own & {b"-d", b"--detach"}:
                return (
                    "it needs a terminal, and interactive: true gives it only a pipe",
                    "leave -t out",
                )
    chosen = {each.name for each in command.assignments} & _EDITOR_NAMES or b"env" in command.via
    if name == b"crontab" and b"-e" in texts and not chosen:
        return "it opens an editor", "write the table to a file, and crontab FILE"
    if name in (b"tmux", b"screen"):
        return _multiplexer(command, texts)
    edited = name in (b"kubectl", b"oc", b"systemctl") and b"edit" in texts
    if (edited or (name == b"sudo" and b"-e" in texts)) and not chosen:
        return "it opens an editor", "write the file, and apply it"
    if name in (b"passwd", b"chsh", b"chfn") and len(command.words) < 3:
        return "it asks questions on a terminal", "use a program that takes the answer as input"
    return None


def _own_flags(words: Sequence[Word], valued: frozenset[bytes]) -> set[bytes]:
    """Return the names of a command's own options, which come before its first operand. Words
    after the first operand belong to another command, as in `docker run IMAGE COMMAND`."""
    own: list[Word] = []
    at = 0
    while at < len(words) and known_prefix(words[at]).startswith(b"-"):
        own.append(words[at])
        text = known_prefix(words[at])
        last = text if text.startswith(b"--") else b"-" + text[-1:]
        at += 2 if last in valued else 1
    return {flag.name.partition(b"=")[0] for flag in find_flags(own)}


def _multiplexer(command: ParsedCommand, texts: set[bytes | None]) -> tuple[str, str] | None:
    verb = next(
        (word.text for word in find_operands(command.arguments, frozenset({b"-L", b"-S", b"-f"}))),
        None,
    )
    detached = any(text and text.startswith(b"-") and b"d" in text for text in texts)
    if command.name == b"screen":
        quiet = detached or texts & {b"-ls", b"-X", b"-list", b"-wipe", b"-Q"}
        return None if quiet else ("it draws on a terminal", "use screen -dm")
    if verb in (None, b"attach", b"attach-session", b"a", b"at") or (
        verb in (b"new", b"new-session") and not detached
    ):
        return "it draws on a terminal", "use tmux new-session -d, send-keys and capture-pane"
    return None
