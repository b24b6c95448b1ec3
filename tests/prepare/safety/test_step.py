"""Tests of the safety rules: refused commands, allowed commands, and disguised commands."""

import random
import re

import pytest

from nacre.bash.analyze import analyze
from nacre.model.caller import Caller
from nacre.model.plan import Command, Plan
from nacre.model.refusals import Dangerous
from nacre.prepare.safety.rule_selection import PACKS, RULES, select_rules
from nacre.prepare.safety.step import safety_step
from tests.support.explain import TOOLS, asked, table

HOME = b"/home/me"


def rule(command: str, packs: str = "disk", cwd: str = "/code/project") -> str | None:
    """Return the name of the rule that refuses the command, or None."""
    caller = Caller(cwd=cwd.encode(), env={b"HOME": HOME})
    script = command.encode()
    plan = Plan(command=Command(original=script, script=script, cwd=caller.cwd))
    said = safety_step(select_rules(packs.split(",")))(plan, caller)
    return said.rule if isinstance(said, Dangerous) else None


REMOVED = [
    *[
        r"/",
        r"//",
        r"/.",
        r"/..",
        r"/../",
        r"/tmp/..",
        r"/./",
        r"/*",
        r"/**",
        r"/.*",
        r"/?*",
        r"/e*",
        r"/{bin,etc}",
        r"/etc",
        r"/etc/",
        r"/etc/*",
        r"/usr",
        r"/usr/*",
        r"/usr/bin",
        r"/usr/lib/*",
        r"/bin",
        r"/boot",
        r"/var/lib",
        r"/home",
        r"/home/*",
        r"/home/other",
        r"~",
        r"~/",
        r"~/*",
        r"~/.*",
        r"~/.",
        r"~root",
        r"~other",
        r"$HOME",
        r"${HOME}",
        r'"$HOME"',
        r'"${HOME}"/',
        r"$HOME/*",
        r'"$HOME"/*',
        r"${HOME:?}",
        r"/root",
        r"/opt",
        r"/srv",
        r"/home/me",
        r"/home/me/",
        r"/home/me/../me",
        r"/lib64",
        r"/dev",
        r"/proc",
        r"/sys",
        r"/mnt/c",
        r"/Users/x",
        r"'/'",
        r'"/"',
        r"\/",
        r"$'\x2f'",
        r"/''",
        r"../..",
        r"../../*",
        r"/code/../etc",
    ],
    "ok /",
    "-- /",
]
KEPT = [
    *[
        r"/tmp/x",
        r"/tmp",
        r"/tmp/*",
        r"./build",
        r"node_modules",
        r"etc",
        r"./etc",
        r"usr/*",
        r"*",
        r".",
        r"*.pyc",
        r"/var/tmp/x",
        r"/var/cache/apt/*",
        r"/var/lib/apt/lists/*",
        r"/etc/nginx",
        r"/etc/nginx/*",
        r"/opt/app",
        r"/usr/local/app",
        r"~/project/build",
        r"~/.cache",
        r"~/.cache/*",
        r"$HOME/x",
        r"'~'",
        r"'$HOME'",
        r"\~",
        r"/home/me/x",
        r'"$tmp"',
        r"$d/*",
        r'"$d"',
        r"/etc/*.bak",
        r"/code/project/x",
        r"/srv/www/old",
        r"''",
        r"/home/me/a/../b",
        r"/e",
        r"/usrx",
        r"/etcetera",
        r"../sibling",
        r"/mnt/data/x",
        r"'/*x'",
    ],
    "-- -rf",
]


@pytest.mark.parametrize("target", REMOVED)
def test_removing_irreplaceable_files_is_refused(target: str) -> None:
    for flags in ("-rf", "-fr", "-r -f", "-R", "--recursive --force", "-rfv", "--recurs"):
        assert rule(f"rm {flags} {target}") == "disk.remove", flags
    assert rule(f"rm {target} -rf") == ("disk.remove" if "--" not in target else None)


@pytest.mark.parametrize("target", KEPT)
def test_removing_ordinary_things_is_not(target: str) -> None:
    assert rule(f"rm -rf {target}") is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rm -f /", None),
        ("rm /etc", None),
        ("x=/; rm -rf $x", "disk.remove"),
        ("x=/tmp; rm -rf $x/y", None),
        ("x=$(mktemp -d); rm -rf $x", None),
        ("rm -rf ${DIR:-/}", "disk.remove"),
        ("for d in /tmp/a /etc; do rm -rf $d; done", "disk.remove"),
        ("for d in a b; do rm -rf $d; done", None),
        ('a=(x /usr); rm -rf "${a[@]}"', "disk.remove"),
        ('f() { rm -rf "$1"; }; f /', "disk.remove"),
        ('f() { rm -rf "$1"; }; f ./x', None),
        ("cd / && rm -rf *", "disk.remove"),
        ("cd /; rm -rf ./*", "disk.remove"),
        ("cd ~ && rm -rf .", "disk.remove"),
        ("cd /tmp && rm -rf *", None),
        ("(cd /); rm -rf *", None),
        ("echo / | xargs rm -rf", "disk.remove"),
        ("echo a b | xargs rm -rf", None),
        ("rm -rf $(echo /)", "disk.remove"),
        ("alias x='rm -rf /'", None),
        ("rm -rf / || true", "disk.remove"),
        ("! rm -rf /", "disk.remove"),
        ("while true; do rm -rf /; done", "disk.remove"),
        ("case x in x) rm -rf /;; esac", "disk.remove"),
        ("rm -rf /\nif then", "disk.remove"),
        ("trap 'rm -rf /' EXIT", "disk.remove"),
        ("echo ok # rm -rf /", None),
        ("printf '%s' 'rm -rf /' > notes.txt", None),
        ('ssh host ls; echo "rm -rf /"', None),
        ("git commit -m 'rm -rf /' && echo `rm -rf /`", "disk.remove"),
        ("find / -delete", "disk.find"),
        ("find / -name '*.tmp' -delete", "disk.find"),
        ("find /etc -delete", "disk.find"),
        ("find ~ -type f -delete", "disk.find"),
        ("find / -exec rm -rf {} +", "disk.find"),
        ("find / -type f -exec /bin/rm {} \\;", "disk.find"),
        ("cd / && find -delete", "disk.find"),
        ("find / -name x", None),
        ("find / -type f | xargs rm -f", "disk.find-xargs"),
        ("find / -print0 | xargs -0 rm", "disk.find-xargs"),
        ("find . | xargs rm -rf", None),
        ("find ~ -name '*.tmp' | xargs rm", None),
        ("find / -name x | xargs ls", None),
        ("xargs rm -rf <<< /", "disk.remove"),
        ("find /etc -name '*.bak' -delete", None),
        ("find . -delete", None),
        ("find /tmp -mtime +7 -delete", None),
        ("chmod -R 777 /", "disk.permissions"),
        ("chown -R me:me /etc", "disk.permissions"),
        ("chmod --recursive u+w /usr", "disk.permissions"),
        ("chgrp -hR staff /", "disk.permissions"),
        ("chmod 777 /", None),
        ("chown -R me ~", None),
        ("chmod -R u+w .", None),
        ("chown -R www-data /var/www", None),
        ("dd if=x of=/dev/sda", "disk.dd"),
        ("dd of=/dev/disk2 if=x", "disk.dd"),
        ("dd if=x of=/dev/mapper/root", "disk.dd"),
        ("dd if=x of=/dev/sd$letter", "disk.dd"),
        ("dd if=/dev/sda of=x", None),
        ("dd if=/dev/zero of=/dev/null", None),
        ("cat x > /dev/sda", "disk.redirect"),
        ("> /dev/nvme0n1", "disk.redirect"),
        ("cat x >> /dev/vda1", "disk.redirect"),
        ("x 2> /dev/sdb", "disk.redirect"),
        ("x &> /dev/sdb", "disk.redirect"),
        ("{ a; b; } > /dev/sda", "disk.redirect"),
        ("x < /dev/sda", None),
        ("x > /dev/tty 2> /dev/stderr", None),
        ("echo x > /dev/tcp/host/80", None),
        ("tee /dev/sda < x", "disk.copy"),
        ("cat x | sudo tee -a /dev/sdb", "disk.copy"),
        ("cp x /dev/sda", "disk.copy"),
        ("cp /dev/sda x", None),
        ("mkfs.ext4 /dev/sda1", "disk.format"),
        ("mkfs -t xfs /dev/vdb", "disk.format"),
        ("mkswap /dev/sda2", "disk.format"),
        ("wipefs -a /dev/sda", "disk.format"),
        ("shred -n 3 /dev/sda", "disk.format"),
        ("mkfs.ext4 disk.img", None),
        ("fdisk -l /dev/sda", None),
        ("man mkfs.ext4", None),
        (":(){ :|:& };:", "disk.fork-bomb"),
        ("bomb() { bomb | bomb & }; bomb", "disk.fork-bomb"),
        ("b() { b & b & }; b", "disk.fork-bomb"),
        ("f() { [ $1 = 0 ] && return; f $(($1 - 1)) & f $(($1 - 1)) & wait; }; f 3", None),
        ("fib() { if (($1 < 2)); then echo 1; else echo $(($(fib 1) + $(fib 0))); fi; }", None),
        ("perl -e 'fork while fork'", "disk.fork-loop"),
    ],
)
def test_disk(command: str, expected: str | None) -> None:
    assert rule(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git add -A", "git.add-all"),
        ("git add --all", "git.add-all"),
        ("git add .", "git.add-all"),
        ("git add -A .", "git.add-all"),
        ("git -C x add .", "git.add-all"),
        ("git add -v -A", "git.add-all"),
        ("git add -A src", None),
        ("git add src/a.py", None),
        ("git add -u", None),
        ("git push --force", "git.force-push"),
        ("git push -f origin main", "git.force-push"),
        ("git push origin +main", "git.force-push"),
        ("git push -uf origin main", "git.force-push"),
        ("git push --force-with-lease", None),
        ("git push --force-with-lease=main:abc origin main", None),
        ("git push origin main", None),
        ("git push -o ci.skip", None),
        ("git config user.name x", "git.identity"),
        ("git config --global user.email x@y", "git.identity"),
        ("git config set user.name x", "git.identity"),
        ("git config --unset user.name", "git.identity"),
        ("git -c user.name=x commit -m y", "git.identity"),
        ("GIT_AUTHOR_NAME=x git commit -m y", "git.identity"),
        ("export GIT_COMMITTER_EMAIL=x", "git.identity"),
        ("git config user.name", None),
        ("git config --get user.email", None),
        ("git config core.editor vim", None),
        ("echo git add -A", None),
    ],
)
def test_git(command: str, expected: str | None) -> None:
    assert rule(command, "git") == expected
    assert rule(command) is None  # the git rules are off by default


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rm -rf .git", "workspace.git"),
        ("rm -rf ./.git/", "workspace.git"),
        ("rm -rf sub/.git", "workspace.git"),
        ("rm -rf *", "workspace.all"),
        ("rm -rf ./*", "workspace.all"),
        ("rm -rf .*", "workspace.all"),
        ("rm -rf .", "workspace.all"),
        ("rm -rf $PWD", "workspace.all"),
        ("rm -rf ~/x", "workspace.home"),
        ("rm -rf $HOME/.config", "workspace.home"),
        ("rm -rf .github", None),
        ("rm -rf build *.pyc", None),
        ("rm -rf '*'", None),
        ("rm .git/index.lock", None),
        ("rm -rf /code/project/build", None),
    ],
)
def test_workspace(command: str, expected: str | None) -> None:
    assert rule(command, "workspace") == expected
    assert rule(command) is None


def test_packs_and_rules_can_be_chosen() -> None:
    assert PACKS == ("disk", "git", "workspace")
    assert [each.id for each in select_rules(["git"])] == [
        "git.add-all",
        "git.force-push",
        "git.identity",
    ]
    assert [each.id for each in select_rules(["disk.dd", "git", "-git.identity"])] == [
        "disk.dd",
        "git.add-all",
        "git.force-push",
    ]
    assert select_rules([]) == ()
    assert all(each.summary and each.id.count(".") == 1 for each in RULES.values())
    with pytest.raises(
        ValueError, match=r"there is no safety rule or pack 'disk\.rm'; did you mean"
    ):
        select_rules(["disk.rm"])


def test_off_is_off() -> None:
    assert asked("rm -rf /", options={"safety": "off"})["verdict"] == "run"
    assert asked("rm -rf /", options={"safety": "disk,-disk.remove"})["verdict"] == "run"
    assert asked("rm -rf /", contract="pi", options={"safety": "disk"})["verdict"] == "refuse"


# Disguised commands: other quoting, prefixes and spacing do not change the verdict.

_EXTERNAL = {
    *("rm", "dd", "find", "mkfs", "mkfs.ext4", "cat", "head", "tail", "grep", "rg", "sed", "perl"),
    *("ps", "make", "git", "mktemp", "sudo", "env", "bash", "ls"),
}
_PLAIN = re.compile(rb"[A-Za-z0-9_./,+@%-]+")


def _words(text: bytes) -> list[tuple[int, int]]:
    """Return the spans of the words that can be quoted without a change of meaning."""
    return sorted(
        {
            (word.start, word.end)
            for command in analyze(text).commands
            for word in command.words
            if command.exact and not command.via and _PLAIN.fullmatch(text[word.start : word.end])
        }
    )


def _quoted(text: bytes, pick: random.Random) -> bytes:
    spans = _words(text)
    for start, end in sorted(pick.sample(spans, pick.randint(0, len(spans))), reverse=True):
        word = text[start:end]
        cut = pick.randint(0, len(word))
        dressed = pick.choice(
            [
                b"'" + word + b"'",
                b'"' + word + b'"',
                b"\\" + word,
                b"".join(b"\\" + bytes([byte]) for byte in word),
                word[:cut] + b"''" + word[cut:],
                word[:cut] + b'"' + word[cut:] + b'"',
                b"$'" + word + b"'",
            ]
        )
        text = text[:start] + dressed + text[end:]
    return text


def _prefixed(text: bytes, pick: random.Random) -> bytes:
    starts = {
        command.words[0].start
        for command in analyze(text).commands
        if command.exact
        and not command.via
        and command.words
        and (command.words[0].text or b"").decode() in _EXTERNAL
    }
    for start in sorted(starts, reverse=True):
        before = pick.choice([b"", b"command ", b"env ", b"env A=1 ", b"command env "])
        text = text[:start] + before + text[start:]
    return text


def _spaced(text: bytes, pick: random.Random) -> bytes:
    for start, _ in reversed(_words(text)):
        if start and text[start - 1 : start] == b" ":
            blank = pick.choice([b" ", b"  ", b"\t", b" \\\n", b" \\\n\t "])
            text = text[: start - 1] + blank + text[start:]
    return text


def _wrapped(text: bytes, pick: random.Random) -> bytes:
    if not analyze(text).commands:
        return text
    return pick.choice(
        [
            text,
            b"{ " + text + b"\n}",
            b"(" + text + b"\n)",
            b"if true; then " + text + b"\nfi",
            b"true && {\n" + text + b"\n}",
            b"\n\n  " + text + b"\n\n",
            b"if { true; }\nthen\n" + text + b"\nelse true; fi",
        ]
    )


def _dressed(text: str, pick: random.Random) -> str:
    made = text.encode()
    for change in pick.sample([_quoted, _prefixed, _spaced, _wrapped], pick.randint(1, 4)):
        made = change(made, pick)
    return made.decode()


@pytest.mark.parametrize("row", table("safety"), ids=lambda row: row["command"])
def test_dressing_up_does_not_change_the_verdict(row: dict[str, str]) -> None:
    if analyze(row["command"].encode()).unreadable is not None:
        return  # the command cannot be parsed, so it cannot be rewritten
    pick = random.Random(row["command"])
    expected = asked(row["command"])["rule"]
    for _ in range(60):
        dressed = _dressed(row["command"], pick)
        assert asked(dressed)["rule"] == expected, dressed


@pytest.mark.parametrize("row", table("interception"), ids=lambda row: row["command"])
def test_dressing_up_does_not_change_the_suggestion(row: dict[str, str | None]) -> None:
    command = row["command"] or ""
    pick = random.Random(command)
    for _ in range(60):
        dressed = _dressed(command, pick)
        said = asked(dressed, contract="pi", tools=TOOLS)
        assert (said["suggestion"] or {}).get("tool") == row["tool"], dressed


@pytest.mark.parametrize("row", table("commits"), ids=lambda row: row["command"])
def test_dressing_up_does_not_hide_a_commit(row: dict[str, bool | str]) -> None:
    command = str(row["command"])
    pick = random.Random(command)
    for _ in range(40):
        dressed = _dressed(command, pick)
        assert asked(dressed)["commits"] is row["commits"], dressed
