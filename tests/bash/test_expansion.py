"""Tests of word expansion: a text that `analyze` predicts must equal the expansion by bash."""

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.bash.analyze import analyze
from nacre.bash.commands import Word

HOME = b"/home/someone"
BEFORE = b"a=one; b='two words'; c=; p=/usr/lib/x.tar.gz; l=(1 'x y' 3); set -- first 'se cond'; "


def words(text: bytes, before: bytes = b"") -> list[Word]:
    """Return the words after `echo`, the last command of the script."""
    return [*analyze(before + b"echo " + text, home=HOME, cwd=os.getcwdb()).commands[-1].words[1:]]


def texts(text: bytes, before: bytes = b"") -> list[bytes | None]:
    return [word.text for word in words(text, before)]


def bash(text: bytes, before: bytes = b"") -> list[bytes]:
    """Return the arguments that bash passes to a command. Globbing is off, because `analyze` does
    not expand globs either."""
    script = b"set -f; " + before + b"printf '%s\\0' x " + text
    ran = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"HOME": HOME.decode(), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        timeout=30,
        check=True,
    )
    return ran.stdout.split(b"\0")[1:-1]


KNOWN: dict[bytes, list[bytes | None]] = {
    b"plain": [b"plain"],
    b"'a b'\"c\"d\\ e": [b"a bcd e"],
    b"''": [b""],
    b"$'a\\tb\\x41\\u00e9\\'\\101'": ["a\tbAé'A".encode()],
    b'"a\\$b\\"c\\d"': [b'a$b"c\\d'],
    b'"a\\\nb" c\\\nd': [b"ab", b"cd"],
    b"~ ~/x '~' a~ \"~\"/x": [HOME, HOME + b"/x", b"~", b"a~", b"~/x"],
    b"~root/x": [b"/root/x"],
    b"{a,b}{1..3}": [b"a1", b"a2", b"a3", b"b1", b"b2", b"b3"],
    b"{a,'b c',}x a{b {} {a} '{a,b}'": [b"ax", b"b cx", b"x", b"a{b", b"{}", b"{a}", b"{a,b}"],
    b"{c..a} {3..1}": [b"c", b"b", b"a", b"3", b"2", b"1"],
    b'$a ${a} x$a"$a"': [b"one", b"one", b"xoneone"],
    b'$b "$b"': [b"two", b"words", b"two words"],
    b'$c "$c" x': [b"", b"x"],
    b"${a:-z} ${c:-z} ${c-z} ${a:+y} ${c:+y}": [b"one", b"z", b"y"],
    b"${p##*/} ${p%.gz} ${p%%.*} ${p#/usr}": [
        b"x.tar.gz",
        b"/usr/lib/x.tar",
        b"/usr/lib/x",
        b"/lib/x.tar.gz",
    ],
    b'"${l[@]}" ${l[@]} $l': [b"1", b"x y", b"3", b"1", b"x", b"y", b"3", b"1"],
    b'"$@" $1 "$2"': [b"first", b"se cond", b"first", b"se cond"],
    b"$(echo hi) `echo there` \"$(printf '%s\\n' a b)\"": [b"hi", b"there", b"a\nb"],
    b"$(cat <<'E'\nit's $x\nE\n)": [b"it's", b"$x"],
    b'$"text"': [b"text"],
    b"a#b": [b"a#b"],
}


@pytest.mark.parametrize("text", KNOWN)
def test_what_can_be_known_is_what_bash_makes_of_it(text: bytes) -> None:
    assert texts(text, BEFORE) == KNOWN[text]
    assert bash(text, BEFORE) == KNOWN[text]


@pytest.mark.parametrize(
    "text",
    [b"$x", b'"$x"', b"$(date)", b"`x`", b"$((1+1))", b"${!a}", b"${#a}", b"$?", b"$$", b"<(x)"],
)
def test_what_cannot_be_known_is_unknown(text: bytes) -> None:
    assert texts(text) == [None]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (b"x=1; ", b"1"),
        (b"x=1; x=2; ", b"2"),
        (b"x=1; x+=2; ", b"12"),
        (b"x=$(date); ", None),
        (b"x=1; read x; ", None),
        (b"x=1; unset x; ", None),
        (b"x=1; (x=2); ", b"1"),
        (b"x=1; x=2 true; ", b"1"),
        (b"x=1; true | x=2; ", b"1"),
        (b"x=1; x=2 & ", b"1"),
        (b"x=1; if a; then x=2; fi; ", None),
        (b"if a; then x=2; else x=2; fi; ", b"2"),
        (b"x=1; a && x=2; ", None),
        (b"x=1; a || exit; ", b"1"),
        (b"x=1; while a; do x=2; done; ", None),
        (b"x=1; case a in b) x=2;; esac; ", None),
        (b"x=1; source f; ", None),
        (b'x=1; eval "$y"; ', None),
        (b"eval x=3; ", b"3"),
        (b"x=1; f() { x=2; }; ", b"1"),
        (b"x=1; f() { x=2; }; f; ", b"2"),
        (b"export x=1; ", b"1"),
        (b"local x=1; ", b"1"),
        (b"x=1; printf -v x %s 2; ", None),
        (b": ${x:=5}; ", None),
        (b"x=; : ${x:=5}; ", b"5"),
        (b"for x in 7; do :; done; ", b"7"),
        (b"for x in 7 8; do :; done; ", None),
    ],
)
def test_a_variable_is_known_only_when_it_is_sure(before: bytes, expected: bytes | None) -> None:
    assert texts(b"$x", before)[-1:] == [expected]


def test_what_a_word_may_be_is_kept() -> None:
    text = b"for d in / /etc; do rm -rf $d; done; if a; then y=1; else y=2; fi; echo $y ${z:-/}"
    remove, say = analyze(text).commands[0], analyze(text).commands[-1]
    assert remove.words[2].texts == (b"/", b"/etc")
    assert {*say.words[1].texts} == {b"1", b"2"}
    assert say.words[2].maybe == (b"/",)


def test_globs_stay_patterns_unless_quoted() -> None:
    found = words(b"*.py '*' a\\* [ab] ? \"*\"")
    assert [(word.text, word.glob) for word in found] == [
        (b"*.py", True),
        (b"*", False),
        (b"a*", False),
        (b"[ab]", True),
        (b"?", True),
        (b"*", False),
    ]


def test_the_known_beginning_of_an_unknown_word_is_kept() -> None:
    found = words(b"--file=$x of=/dev/sd${y} $z/a")
    assert [word.prefix for word in found] == [b"--file=", b"of=/dev/sd", b""]


_PIECES = st.sampled_from(
    [
        *("a", "bc", "/", ".", "-x", "=", ":", "~", "~/", "{", "}", ",", "..", "1", "3", "{a,b}"),
        *("'q r'", '"d e"', "''", '""', "\\ ", "\\$", "\\\\", "\\'", "$'\\t'", "$'\\x41'", "$a"),
        *(
            "${a}",
            "$b",
            '"$b"',
            "$c",
            '"$c"',
            "${c:-z}",
            "${a:+y}",
            "${p##*/}",
            "${p%.*}",
            "%",
            "+",
        ),
        *("$(echo s)", "`echo t`", '"$(echo u v)"', "{1..3}", "#", "^", "@", '"$@"', "$1", "é"),
    ]
)


@settings(max_examples=300)
@given(st.lists(st.lists(_PIECES, min_size=1, max_size=5).map("".join), min_size=1, max_size=3))
def test_analyze_expands_random_words_as_bash_does(pieces: list[str]) -> None:
    text = " ".join(each for each in pieces if not each.startswith("#")).encode() or b"x"
    found = texts(text, BEFORE)
    if None not in found and analyze(BEFORE + b"echo " + text).unreadable is None:
        assert found == bash(text, BEFORE)


CORNERS = rb"""
x=1; ((x++)); p $x
x=1; : $((x=5)); p $x
declare -i x; x=1+1; p $x
declare -u x=abc; p $x
x=1; f() { local x=2; }; f; p $x
x=1; x=2 y=$x; p $y
x=" a "; p b${x}c
x=a:~/y; p $x
IFS=,; x=a,b; p $x
IFS=; x='a b'; p $x
set -- a b; IFS=,; p "$*"
x=a; command read x <<< b; p $x
x=a; builtin printf -v x b; p $x
cd /tmp; builtin cd /usr; p $PWD
y='x=b'; export $y; p $x
p {01..03} {1..10..3} {c..a..2} {-1..1}
x=(a b); unset 'x[0]'; p ${x[0]}
x=(a b c); p ${x[1]} "${x[2]}" ${x[9]}-
x=abc; p ${x:1} ${x:0:2} ${x^^} ${x/b/-} ${#x}
x=y; y=z; p ${!x}
set -- a b c; shift; p $1 $3-
unset x; p ${x-d} ${x:-e} ${x+f}-
x=; p ${x-d} ${x:-e} ${x+f}
x="a b"; set -- $x; p "$1" "$2"
read x <<< 'one'; p $x
x=$(printf 'a\nb\n'); p "$x" $x
a() { x=$1; }; a z; p $x
export x=1; p $(bash -c 'echo $x')
set -- a b; while [ "$1" = a ]; do shift; done; p $1
i=0; for x in a b; do i=$i$x; done; p $i
cd /tmp; for x in a b; do cd ..; done; p $PWD
set a b; p $1
let x=1+1; p $x
printf -vx b; p $x
set -- 'a b' c; p "x$@y"
set -- a '' b; p "$*"
x=; p ${x:-"b c"}
x='*a'; p ${x##"*"}
x=aba; p ${x/a/&-}
p $(echo -e 'a\0101')
x=$(echo hi >&2); p "$x"-
f() { x=b; }; x=a; eval f; p $x
x=b; f() { local x; x=c; }; f; p $x
x=1; for x in; do :; done; p $x
x=$'\xc3\xa9'; p ${#x}
RANDOM=5; p $RANDOM
""".strip().split(b"\n")


@pytest.mark.parametrize("script", CORNERS, ids=lambda text: text.decode())
def test_analyze_expands_corner_cases_as_bash_does(script: bytes) -> None:
    ours = [word.text for word in analyze(script, home=HOME, cwd=b"/w").commands[-1].words[1:]]
    if None not in ours:
        before, _, words = (b":; " + script).rpartition(b"p ")
        assert ours == bash(words, before)


def test_most_of_these_corners_are_known_at_all() -> None:
    """Check that `analyze` predicts enough corner cases for a useful comparison with bash."""
    known = [
        script
        for script in CORNERS
        if None not in [word.text for word in analyze(script, cwd=b"/w").commands[-1].words]
    ]
    assert len(known) >= 12


@pytest.mark.parametrize(
    "script",
    [
        "x=1; for i in a b; do p $x; x=2; done",
        "n=1; while true; do p $n; ((n++)); done",
        "set -- a b; while true; do p $1; shift; done",
        "cd /tmp; for i in a b; do p $PWD; cd ..; done",
        "x=1; f() { x=2; }; for i in a b; do p $x; f; done",
        "x=1; until false; do p $x; read x; done",
        "x=1; for i in a; do for j in b; do p $x; done; x=2; done",
    ],
)
def test_what_a_later_turn_of_a_loop_changes_is_open(script: str) -> None:
    found = [each for each in analyze(script.encode(), cwd=b"/w").commands if each.name == b"p"]
    assert [len(each.words) for each in found] == [2]
    assert found[0].words[1].text is None


def test_what_a_loop_does_not_change_stays_known() -> None:
    (found,) = analyze(b"x=1; for i in a b; do p $x; done").commands
    assert found.words[1].text == b"1"
