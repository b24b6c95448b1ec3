"""Tests that the predicted variables after a random script equal the variables in bash."""

import os
import random
import subprocess

from nacre.bash.analyze import analyze

SCRIPTS = int(os.environ.get("NACRE_STATES", "150"))
HOME = "/home/someone"
ASKED = '"$x" "$y" "$z" "$n" "$1" "$2" "$PWD" "${a[1]}" "$k"'
STATEMENTS = r"""
x=1
y=two
x='a b'
x=
z=$x
y=$x$y
x+=c
unset x
set -- a 'b c' d
shift
set -- $x
a=(1 '2 3')
a+=(4)
y=${a[1]}
x=${x:-d}
y=${y#t}
x=${x/a/-}
y=${x:0:1}
((n++))
n=5
let n=7
read x <<< hello
read -r y z <<< 'p q r'
printf -v x %s zz
export y=ex
declare x=dec
x=$(echo out)
y=`echo back`
x=$(printf '%s' "$y")
: ${z:=def}
IFS=,
eval 'x=ev'
eval y=\$x
cd /
cd /usr
x=$PWD
true
false
y="$*"
f
g 1 2
x=~
declare -i k=3
k=1+1
y=${#x}
command read x <<< cr
builtin printf -v y bp
""".strip().split("\n")
AROUND = [
    "if true; then {0}; else {1}; fi",
    "if false; then {0}; else {1}; fi",
    "if [ -n x$x ]; then {0}; fi",
    "for x in p q; do {0}; {1}; done",
    "for x in $y; do {0}; done",
    "while read -r x; do {0}; done <<< $'l1\nl2'",
    "( {0}; {1} )",
    "{{ {0}; {1}; }}",
    "{0} && {1}",
    "{0} || {1}",
    "true && {0} || {1}",
    "{0} | cat",
    "{{ {0}; }} & wait",
    "case $x in 1) {0};; *) {1};; esac",
    "f() {{ {0}; {1}; }}",
    "g() {{ local x=$1; {0}; }}",
    "bash -c 'x=inner; cd /'",
]


def statement(pick: random.Random, depth: int) -> str:
    if not depth or pick.random() < 0.5:
        return pick.choice(STATEMENTS)
    inner = [statement(pick, depth - 1) for _ in range(2)]
    return pick.choice(AROUND).format(*inner)


def test_what_is_known_after_a_script_is_what_bash_has() -> None:
    known = 0
    for seed in range(SCRIPTS):
        pick = random.Random(seed)
        lines = [statement(pick, 2) for _ in range(pick.randint(2, 7))]
        script = "f() { :; }; g() { :; }\n" + "\n".join(lines) + f"\np {ASKED}"
        words = analyze(script.encode(), home=HOME.encode(), cwd=b"/tmp").commands[-1].words[1:]
        known += _compared(script, [word.text for word in words])
    assert known > SCRIPTS  # enough predictions for a useful comparison


def _compared(script: str, ours: list[bytes | None]) -> int:
    """Check each predicted word against bash, and return the number of predicted words."""
    ours_end, theirs_end = os.pipe()
    with os.fdopen(ours_end, "rb") as file:
        ran = subprocess.run(
            ["bash", "--norc", "-c", f"p() {{ printf '%s\\0' \"$@\" >&{theirs_end}; }}\n{script}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs_end,),
            cwd="/tmp",
            env={"HOME": HOME, "PATH": "/usr/bin:/bin"},
            timeout=30,
        )
        os.close(theirs_end)
        theirs = file.read().split(b"\0")[:-1]
    if ran.stderr or len(theirs) != len(ours):
        return 0  # a command failed, and bash skipped the rest of its line
    for mine, real in zip(ours, theirs, strict=True):
        assert mine is None or mine == real, (script, ours, theirs)
    return sum(each is not None for each in ours)
