"""Tests of `analyze`: the commands of a script, their positions, their input and their wrappers."""

import random
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.bash.analyze import analyze
from nacre.bash.commands import Analysis, ParsedCommand


def reading(text: str) -> Analysis:
    return analyze(text.encode(), home=b"/home/me", cwd=b"/w")


def listed(text: str) -> list[str]:
    """Return the words of each command, joined by blanks, with `?` for an unknown word."""
    return [_line(command) for command in reading(text).commands if command.words]


def _line(command: ParsedCommand) -> str:
    return b" ".join(b"?" if word.text is None else word.text for word in command.words).decode()


def only(text: str) -> ParsedCommand:
    return reading(text).commands[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a; b && c || d | e & f", ["a", "b", "c", "d", "e", "f"]),
        ("(a; { b; }); { c; }", ["a", "b", "c"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", ["a", "b", "c", "d"]),
        ("for x in $(a); do b; done; for ((i=$(c);;)); do d; done", ["a", "b", "c", "d"]),
        ("case $(a) in $(b)) c;; *) d;; esac", ["a", "b", "c", "d"]),
        ("f() { a; }; function g { b; }", ["a", "b"]),
        ("f() { a; }; f", ["a", "f", "a"]),
        (
            'x $(a) `b` <(c) >(d) $((1+$(e))) "$(f)"',
            ["a", "b", "c", "d", "e", "f", "x ? ? ? ? ? ?"],
        ),
        ("x=$(a) y=(1 $(b)); [[ $(c) == d ]]; ((x = $(e)))", ["a", "b", "c", "e"]),
        ("x <<E\n$(a) `b`\nE", ["a", "b", "x"]),
        ("x <<'E'\n$(a) `b`\nE", ["x"]),
        ("x <<< $(a)", ["a", "x"]),
        ("x > $(a)", ["a", "x"]),
        ("${x:-$(a)}", ["a", "?"]),
        ("! a; time b; coproc c", ["a", "b", "c"]),
        ("# a\nb # c", ["b"]),
        ("cat <<E > f && x | y\nhi\nE\nz", ["cat", "x", "y", "z"]),
        ("cat <<A <<B | c; d\na\nA\nb\nB\ne", ["cat", "c", "d", "e"]),
        ("select x in a; do b; done", ["b"]),
    ],
)
def test_every_command_is_listed(text: str, expected: list[str]) -> None:
    assert listed(text) == expected
    assert reading(text).unreadable is None


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("sudo rm x", "rm x"),
        ("sudo -u bob -E A=1 rm x", "rm x"),
        ("sudo --user bob -- rm x", "rm x"),
        ("sudo -s rm x", "rm x"),
        ("doas -u bob rm x", "rm x"),
        ("env rm x", "rm x"),
        ("env -i -u A B=1 rm x", "rm x"),
        ("env -S 'rm x'", "rm x"),
        ("env -C /tmp rm x", "rm x"),
        ("command rm x", "rm x"),
        ("command -p rm x", "rm x"),
        ("builtin cd x", "cd x"),
        ("exec -a name rm x", "rm x"),
        ("nohup rm x", "rm x"),
        ("nice -n 5 rm x", "rm x"),
        ("nice -5 rm x", "rm x"),
        ("ionice -c2 -n 7 rm x", "rm x"),
        ("timeout -k 5 --signal=KILL 10 rm x", "rm x"),
        ("\\time -f %e rm x", "rm x"),
        ("stdbuf -oL -e0 rm x", "rm x"),
        ("setsid -w rm x", "rm x"),
        ("xargs -n1 -I{} rm {}", "rm ?"),
        ("echo a b | xargs rm x", "rm x a b"),
        ("chroot /mnt rm x", "rm x"),
        ("chroot --userspec=a:b /mnt rm x", "rm x"),
        ("flock -w 5 lock rm x", "rm x"),
        ("flock lock -c 'rm x'", "rm x"),
        ("watch -n 1 rm x", "rm x"),
        ("watch -x rm x", "rm x"),
        ("find . -exec rm x {} \\;", "rm x ?"),
        ("find . -name y -execdir rm x {} +", "rm x ?"),
        ("bash -c 'rm x'", "rm x"),
        ("bash -ec 'rm x'", "rm x"),
        ("bash -o pipefail -c 'rm x'", "rm x"),
        ("sh -x -c 'rm \"$1\"' name x", "rm x"),
        ('dash -c "rm x"', "rm x"),
        ("/usr/bin/env bash -c 'rm x'", "rm x"),
        ("eval rm x", "rm x"),
        ("eval 'rm' 'x'", "rm x"),
        ("trap 'rm x' EXIT INT", "rm x"),
        ("trap -- 'rm x' EXIT", "rm x"),
        ("bash <<'E'\nrm x\nE", "rm x"),
        ("bash <<< 'rm x'", "rm x"),
        ("echo 'rm x' | bash", "rm x"),
        ("printf 'rm %s\\n' x | sh -s", "rm x"),
        ("cat <<'E' | bash\nrm x\nE", "rm x"),
        ("cmd=rm; $cmd x", "rm x"),
        ("$UNKNOWN rm x", "rm x"),
        ('f() { rm "$1"; }; f x', "rm x"),
        ('f() { g "$@"; }; g() { rm "$1"; }; f x', "rm x"),
        ("su -c 'rm x' bob", "rm x"),
        ("busybox rm x", "rm x"),
        ("bash -c \"bash -c 'rm x'\"", "rm x"),
        ("sudo nohup env A=1 timeout 5 nice bash -c 'rm x'", "rm x"),
        ("source /dev/stdin <<< 'rm x'", "rm x"),
    ],
)
def test_wrappers_are_looked_through(text: str, inner: str) -> None:
    assert inner in listed(text)


@pytest.mark.parametrize(
    "text",
    [
        *("command -v rm", "sudo -l", "sudo -e x", "trap - EXIT", "trap '' INT", "xargs", "env"),
        *(
            "bash script.sh",
            "ionice -p 12",
            "timeout 5",
            "echo 'rm x'",
            "cat x | bash",
            "find . -name rm",
        ),
        *("exec 3< x", "time", "bash -c", "nohup"),
    ],
)
def test_what_runs_nothing_is_not_looked_through(text: str) -> None:
    assert not [command for command in reading(text).commands if command.via]


def test_what_surrounds_a_command_is_known() -> None:
    a, b, c = reading("a | b | c").commands
    assert [(each.fed, each.feeds) for each in (a, b, c)] == [
        (False, True),
        (True, True),
        (True, False),
    ]
    assert b.feeder == a
    assert only("{ a; } | cat; x=$(b)").substitution
    assert only("for x in y; do b; done").loop
    assert only("f() { b; }").function
    assert only("a & b &").background
    assert only("sudo b").via == (b"sudo",)
    grouped = reading("{ a; b; } | c").commands
    assert [each.feeds for each in grouped] == [True, True, False]


def test_redirections_and_assignments_belong_to_their_command() -> None:
    command = only("A=1 B='x y' cmd 2>> err < in >&2 > \"$out\"")
    assert [(each.name, each.value.text) for each in command.assignments] == [
        (b"A", b"1"),
        (b"B", b"x y"),
    ]
    assert [(each.descriptor, each.operator, each.target.text) for each in command.redirects] == [
        (2, b">>", b"err"),
        (0, b"<", b"in"),
        (1, b">&", b"2"),
        (1, b">", None),
    ]
    assert [each.is_write for each in command.redirects] == [True, False, False, True]


def test_heredocs_and_here_strings_are_what_a_command_reads() -> None:
    assert only("cat <<'E'\na $x\nE").stdin == b"a $x\n"
    assert only("cat <<-E\n\t\ta\n\tE").stdin == b"a\n"
    assert only("x=1; cat <<E\na $x\nE").stdin == b"a 1\n"
    assert only("cat <<E\na $y\nE").stdin is None
    assert only("cat <<< 'a b'").stdin == b"a b\n"
    assert only("echo a | cat").stdin == b"a\n"


def test_positions_are_exact_in_strings_too() -> None:
    for text in (
        "bash -c 'a; git commit'",
        'bash -c "a; git commit"',
        "bash <<E\na; git commit\nE",
    ):
        command = only(text)
        assert command.exact
        assert text.encode()[command.start : command.end] == b"git commit"
        word = command.words[1]
        assert text.encode()[word.start : word.end] == b"commit"
    assert not only('bash -c "git \\"commit\\""').exact


def test_the_directory_is_followed() -> None:
    assert only("cd /a; cd b; x").cwd == b"/a/b"
    assert only("cd; x").cwd == b"/home/me"
    assert only("(cd /a); x").cwd == b"/w"
    assert only("cd /a && x").cwd == b"/a"
    assert only("cd /a || exit; x").cwd == b"/a"
    assert only('cd "$y"; x').cwd is None
    assert only("env -C sub x").cwd == b"/w/sub"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("rm x\nif then\n", ["rm x"]),
        ("rm x\necho 'never closed", ["rm x", "echo ?"]),
        ("if true; then rm x\n", ["true", "rm x"]),
        ("rm x; )", ["rm x"]),
        ("rm x &&", ["rm x"]),
        ("for f in a\nrm x", ["rm x"]),
        ("a $(rm x", ["rm x", "a ?"]),
        ('echo "$(rm x)', ["rm x", "echo ?"]),
    ],
)
def test_what_can_be_read_of_unreadable_text_is_read(text: str, seen: list[str]) -> None:
    found = reading(text)
    assert found.unreadable is not None
    lines = [_line(command) for command in found.commands if command.words]
    assert [line for line in lines if line in seen] == seen


def test_a_script_in_a_string_does_not_make_the_outer_one_unreadable() -> None:
    assert reading('bash -c "echo \'x"').unreadable is None


def test_scripts_in_strings_have_only_so_much_room() -> None:
    long = "bash -c '" + "x " * 20_000 + "'; "
    assert "rm x" in listed("bash -c 'rm x'; " + long)
    assert "rm x" not in listed(long * 2 + "bash -c 'rm x'")


BOMBS = {
    "a line of 1 MB": "a" * 1_000_000,
    "1 MB of words": "a " * 500_000,
    "10,000 parentheses": "(" * 10_000 + "a" + ")" * 10_000,
    "10,000 substitutions": "$(" * 10_000 + "a" + ")" * 10_000,
    "10,000 braces": "{ " * 10_000 + "a;" + " }" * 10_000,
    "10,000 conditions": "if " * 10_000,
    "100,000 words": "echo " + "word " * 100_000,
    "100,000 words in a line each": "a\n" * 50_000,
    "quotes in quotes": '"$(' * 5_000,
    "expansions in expansions": "${a:-" * 10_000,
    "braces to expand": "echo " + "{a,b}" * 30,
    "ranges to expand": "echo {1..99999}{1..99999}",
    "wrappers": "sudo " * 20_000 + "rm",
    "functions that call functions": "".join(
        f"f{i}() {{ f{i + 1}; f{i + 1}; }}; " for i in range(200)
    )
    + "f0",
    "strings in strings": "bash -c " * 500 + "x",
    "evals": "eval eval " * 5_000 + "x",
    "heredocs": "a <<E\n" * 20_000,
    "backticks": "`" * 30_001,
    "backslashes": "\\" * 120_001,
    "choices": "".join(f"x{i}=${{y:-a}}$x{i - 1}$x{i - 1};" for i in range(1, 400)) + "echo $x399",
    "branches": "if a; then x=1; fi\n" * 3_000,
    "errors": "a\n)\n" * 10_000,
    "fewer errors": "a\n)\n" * 3_000,
    "errors on one line": "a ) " * 6_000,
    "bars": "| " * 9_000,
    "thens": "then " * 9_000,
    "dones": "done; " * 9_000,
    "elses": "else a; " * 5_000,
    "redirections": "> " * 9_000,
    "braces that lead nowhere": "echo " + "{" * 20_000,
    "long values": "x=" + "a" * 60_000 + "; " + "y=${x#*b}; " * 50,
    "digits": "1" * 5_000 + ">f; echo ${" + "1" * 5_000 + "}; head -n " + "1" * 5_000 + " f",
    "a long chain": "cd / " + "&& a " * 5_000,
    "loops in loops": "for x in a b; do " * 40 + "y=$x; " + "done; " * 40,
    "doublings": "x=aa; " + "x=$x$x; " * 200,
    "arrays": "x=(a b); " + 'x=("${x[@]}" "${x[@]}"); ' * 60,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end_within_a_second(name: str) -> None:
    began = time.process_time()  # processor time, because other tests run in parallel
    reading(BOMBS[name])
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "name", ["a line of 1 MB", "10,000 parentheses", "100,000 words", "1 MB of words"]
)
def test_bombs_are_not_read_and_say_so(name: str) -> None:
    found = reading(BOMBS[name])
    assert found.commands == ()
    assert found.unreadable is not None
    assert found.unreadable.why.startswith("not read: it is ")


# Random scripts whose commands are `echo NUMBER`, so that the output shows which commands ran.


def _scripts() -> st.SearchStrategy[str]:
    numbers = st.integers(1, 99).map(lambda n: f"echo {n}")
    return st.recursive(
        numbers,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["; ", " && ", " || ", "\n", " & wait; "]), inner).map(
                "".join
            ),
            inner.map(lambda s: f"{{ {s}\n}}"),
            inner.map(lambda s: f"({s})"),
            inner.map(lambda s: f"if true; then {s}\nfi"),
            st.tuples(inner, inner).map(lambda p: f"if {p[0]}\nthen {p[1]}\nelse false; fi"),
            inner.map(lambda s: f"for x in a b; do {s}\ndone"),
            inner.map(lambda s: f"case a in a) {s}\n;; esac"),
            inner.map(lambda s: f'echo "$({s})"'),
            inner.map(lambda s: f"echo `{s}`" if "`" not in s else s),
            inner.map(lambda s: f"f() {{ {s}\n}}; f"),
            inner.map(lambda s: f"cat <<E\n$({s}\n)\nE\n"),
            inner.map(lambda s: f"bash -c '{s}'" if "'" not in s else s),
            inner.map(lambda s: f"eval '{s}'" if "'" not in s else s),
            inner.map(lambda s: f"env bash <<'Q'\n{s}\nQ\n" if "Q" not in s else s),
            st.tuples(inner, inner).map(lambda p: f"{{ {p[0]}\n}} | cat; {p[1]}"),
            inner.map(lambda s: f"! {{ {s}\n}}"),
            inner.map(lambda s: f"cat <({s})"),
        ),
        max_leaves=6,
    )


@settings(max_examples=150)
@given(_scripts())
def test_analyze_lists_every_command_that_bash_runs(script: str) -> None:
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
    said = {line for line in ran.stdout.split() if line.isdigit()}
    seen = {
        command.words[1].text.decode()
        for command in reading(script).commands
        if command.name == b"echo" and len(command.words) > 1 and command.words[1].text
    }
    assert said <= {number for text in seen for number in text.split()}


# Tests with random text.

_SOUP = [
    *(
        "a",
        "rm",
        "-rf",
        "/",
        "'",
        '"',
        "`",
        "$",
        "$(",
        "${",
        "((",
        "))",
        "(",
        ")",
        "{",
        "}",
        "[[",
        "]]",
    ),
    *(
        "|",
        "||",
        "&",
        "&&",
        ";",
        ";;",
        "\n",
        "<",
        "<<",
        "<<E",
        "E",
        ">",
        ">>",
        "<(",
        "#",
        "!",
        "\\",
    ),
    *(
        "if",
        "then",
        "fi",
        "for",
        "in",
        "do",
        "done",
        "case",
        "esac",
        "while",
        "function",
        "f()",
        "x=",
    ),
    *(
        "x=(",
        "$x",
        "${x:-",
        "~",
        "*",
        "{a,b}",
        "sudo",
        "bash -c",
        "eval",
        "xargs",
        "é",
        "\x00",
        "\t",
        "$'",
    ),
]


def soup(generator: random.Random) -> str:
    pieces = generator.choices(_SOUP, k=generator.randint(1, 30))
    return generator.choice(["", " "]).join(pieces)


def test_noise_raises_nothing_and_takes_no_time() -> None:
    """Analyze 4,000 random inputs; `make chaos` analyzes 100,000."""
    from tests.support.fuzz import fuzz

    worst = fuzz(seed=3, inputs=4000)
    assert worst < 0.25


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(text: bytes) -> None:
    found = analyze(text)
    for command in found.commands:
        assert 0 <= command.start <= command.end <= len(text)
