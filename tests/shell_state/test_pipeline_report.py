"""Tests of the code that reports the exit statuses of pipelines: a script does not notice it."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacre.bash.script_pipelines import find_pipelines
from nacre.model.caller import Caller
from nacre.model.plan import Command, Plan, ReportedPipeline
from nacre.prepare.pipeline_stages import FailedStage, find_failed_stages, request_pipeline_reports
from nacre.shell_state.pipeline_report import insert_reports, parse_reports, without_reports

BASH = "/bin/bash"
SCRIPTS = int(os.environ.get("NACRE_SCRIPTS", "150"))
SEED = int(os.environ.get("NACRE_SEED", "21"))


def planned(script: bytes) -> tuple[ReportedPipeline, ...]:
    plan = Plan(command=Command(original=script, script=script, cwd=b"/"))
    return request_pipeline_reports(plan, Caller(cwd=b"/", workspace=b"/")).pipelines


def run(script: bytes, place: Path) -> tuple[int, bytes, list[bytes]]:
    """Return the exit status, stdout and the sorted lines of stderr: bash traces the stages of a
    pipeline in any order."""
    done = subprocess.run(
        [BASH, "-c", script], cwd=place, stdin=subprocess.DEVNULL, capture_output=True, timeout=30
    )
    return done.returncode, done.stdout, sorted(done.stderr.splitlines())


def run_reporting(script: bytes, place: Path) -> tuple[int, bytes, list[bytes]]:
    pipelines = planned(script)
    report = place.parent / "report"
    return run(insert_reports(script, pipelines, os.fsencode(report)), place)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "place"
    made.mkdir()
    return made


UNNOTICED = rb"""
false | cat
false | cat; echo $?
true | (exit 8); echo $?
true | false && echo yes
true | false || echo no $?
(exit 7) | (exit 8) || echo $?
set -e; false | true && true | false; echo never
set -e; true | false || echo x; true | false; echo never
set -e; if true | false; then :; fi; echo end
set -eo pipefail; false | cat; echo never
set -o pipefail; false | cat; echo $?; false | cat || echo p
set -u; false | cat; echo $nope; echo x
set -x; false | cat; echo $?
set -r; false | cat; echo $?
set -v; false | cat; echo $?
set -C -f; false | cat; echo *
set -t; false | cat; echo no
set -o posix; false | cat; echo $?
set -T -E; false | cat; echo $?
set | grep -c _nacre
declare -p | grep -c _nacre
compgen -v | grep -c _nacre
echo a | cat; echo !(a)
cd . && ls !(*.py) | head -2
shopt -s extglob; echo @(a|b) | cat
false | cat; x=`set`; echo "$x" | grep -c _nacre
false | cat; eval set | grep -c _nacre
false | cat; set # comment
false | cat; declare +x | grep -c _nacre
false | cat; typeset -g 2>/dev/null | grep -c _nacre
false | cat; echo ${!_n*}
PS4='+$((++n)) '; set -x; true | true; true
env | grep -c nacre
set -a; false | true; env | grep -c _nacre
set -o allexport; false | true; env | grep -c _nacre
set -o errexit -a; false | true; env | grep -c _nacre
o=-a; set $o; false | true; env | grep -c _nacre
set -"a"; false | true; env | grep -c _nacre
set -$(echo a); false | true; env | grep -c _nacre
IFS=1; false | (exit 11); echo "$?"
set +v -a; false | true; env | grep -c _nacre
false | cat; echo "$_"
false | cat; echo "${PIPESTATUS[@]}"
declare -r _nacre_pipe=5; echo a | (exit 3)
readonly BASH_XTRACEFD; false | cat
echo "$BASH_EXECUTION_STRING" | cat
trap 'echo debug' DEBUG; false | cat
trap 'echo err' ERR; true | false; echo $?
trap 'echo bye' EXIT; true | false
set -e; f() { return 4; }; f && (exit 9) 2>&1 | cat; echo $?
! false | true; echo $?
set -e; ! true | true; echo survived
printf 'tr%s "echo \$?" ERR\n' ap > lib; . ./lib; true | (exit 3); echo end; true && false | true
printf 'tr%s "echo \$?" ERR\n' ap > lib; . ./lib; true && true | (exit 3); true | (exit 4) || echo
printf 'tr%s "echo x" ERR\n' ap > lib; . ./lib; set -E; { true | false; }; (true | false); echo end
coproc cat; false | cat
shopt -s lastpipe; false | read x; echo $?; true | exit 5; echo no
shopt -s lastpipe; true | { cd /; }; pwd
shopt -s expand_aliases extglob nullglob nocasematch; false | cat; echo $?
exec false | cat; echo b
exec 2>/dev/null; false | cat; echo err >&2; echo $?
exec 3>&2 2>&1; false | cat; echo err >&2
exec 2>&-; false | cat; echo $?
false | cat; exec echo replaced
exit 3 | exit 4; exit
false | cat; kill -9 $$
true | sh -c 'kill -INT $$'; echo $?
true | sh -c 'kill -TERM $$'; echo $?
printf() { echo hijack; }; exit() { echo hijack; }; true | false; echo $?
f() { echo "$LINENO ${FUNCNAME[@]}"; return 3; }; f | cat; f; echo $?
sleep 0.1 & false | cat; wait $!; echo $?
echo $! | cat; true | false; echo "[$!]"; jobs
IFS=' 0'; (exit 10) | cat; echo $?
RANDOM=1; true | false; echo $RANDOM $BASH_SUBSHELL
umask 777; true | false; echo $?
cd /nonexistent 2>/dev/null | cat && pwd
echo "a | b" | cat; echo 'c | d' | (exit 4); echo $?
for i in 1 2; do false; done | cat; echo $?
echo a | while read x; do echo $x; false; done; echo $?
{ false | cat; }; (false | cat); false | cat
diff <(echo a) <(echo b) | cat; false | tee >(cat >/dev/null) | cat; echo $?
cat <<< b | cat; echo x
false | cat >/dev/full; echo $?
false | cat;; echo
false | cat; echo (x)
false | cat; if
false | cat; echo "unclosed
echo a | cat # x | y
set -m; false | cat; echo $?
""".strip().splitlines()
UNNOTICED += [
    b"false | cat \\",
    b"cat <<X | sort; echo after $?\nb\na\nX\necho tail $LINENO",
    b"cat <<A <<B | cat\na\nA\nb\nB\nfalse | cat; echo $LINENO",
    b"cat <<X |\nbody\nX\nsort\necho $LINENO",
    b"false | cat <<X\nnever ended",
    b"cat <<-X | sort && echo ok\n\tb\n\tX\nfalse | cat || echo n",
    b"false | cat\n\n\nnosuch1 | cat\nnosuch2\necho $LINENO",
    b"false |\n cat \\\n && echo $LINENO",
    b"if true; then\n false | cat\nfi\nfalse | cat; nosuch3",
]


@pytest.mark.parametrize("script", UNNOTICED, ids=range(len(UNNOTICED)))
def test_a_script_does_not_notice_the_report(place: Path, script: bytes) -> None:
    assert run_reporting(script, place) == run(script, place)


def scripts(seed: int) -> Iterator[bytes]:
    """Generate scripts of random commands and operators."""
    choose = random.Random(seed).choice
    commands = (
        *(b"true", b"false", b"(exit 3)", b"{ echo $?; false; }", b"echo $LINENO $?", b"x=1"),
        *(b"cat", b"(exit 9) 2>&1", b"f", b"! true", b"time true", b"wait", b"echo '|;&&'"),
        *(b"if false | true; then :; fi", b"for i in 1; do false; done", b"[[ a == b ]]"),
        *(b"echo $(true | false; echo $?)", b"while read -r x; do echo $x; done", b"{ cat; }"),
        *(b"(cat; exit 5) 2>&1", b"if cat; then false; fi", b"case a in a) cat;; esac"),
        *(b"(cd / && false | cat)", b"{ false | (exit 3); }", b"(true | false) 2>&1"),
        *(b"for i in 1 2; do false | cat; done", b"if :; then f | cat; else cat | cat; fi"),
        *(b"while true | false; do :; done", b"case a in a) false | cat;; esac"),
        *(b"for i in 1 2; do false | false || break; done", b"( (f | false) && true | cat )"),
    )
    while True:
        start = choose(
            (b"", b"set -e; ", b"set -o pipefail\n", b"set -u; ", b"shopt -s lastpipe; ")
        )
        parts = [start, b"export TIME=x TIMEFORMAT=; f() { true | (exit 4); }; "]
        for _ in range(choose((2, 3, 5, 8))):
            parts += [choose(commands), choose((b" | ", b" | ", b"; ", b" && ", b" || ", b"\n"))]
        yield b"".join([*parts, choose(commands)])


def test_random_scripts_do_not_notice_the_report(place: Path) -> None:
    found = scripts(SEED)
    reported = 0
    for _ in range(SCRIPTS):
        script = next(found)
        reported += bool(planned(script))
        # A writer may or may not get SIGPIPE, so equal scripts do not always end in the same way.
        assert any(run_reporting(script, place) == run(script, place) for _ in range(20)), script
    assert reported > SCRIPTS / 5


@pytest.mark.parametrize(
    ("script", "statuses"),
    [
        (b"false | cat", ((1, 0),)),
        (b"true | cat", ()),
        (b"e 3 | cat && e 4 | false || true; true | cat", ((3, 0), (4, 1), ())),
        (b"false && e 3 | cat; e 5 | cat", ((), (5, 0))),
        (b"true | false && e 3 | cat", ((0, 1), ())),
        (b"for i in 1; do (exit 3); done | (exit 4) | cat; exit 7", ((3, 4, 0),)),
        (b"(exit 3) | cat &\nwait", ()),
        (b"e 3 | while read -r x; do :; done", ((3, 0),)),
        (b"e 3 | { cat; } && e 4 | (cat) 2>&1; e 5 | if cat; then :; fi", ((3, 0), (4, 0), (5, 0))),
        (b"true && (exit 3) | cat || echo x", ((3, 0),)),
        (b"e 3 |\n while read -r x\n do :\n done <<< a # end\necho b", ((3, 0),)),
        (b"if (exit 3) | cat; then :; fi", ()),
        (b"(cd / && e 3 | cat)", ((3, 0),)),
        (
            b"{ e 3 | cat; } 2>&1 && (e 4 | cat; e 5 | cat) || e 6 | cat",
            ((3, 0), (4, 0), (5, 0), ()),
        ),
        (b"for n in 3 4; do e $n | cat; done", ((4, 0),)),
        (b"if true | cat; then e 3 | cat; else e 4 | cat; fi", ((3, 0), ())),
        (b"case a in\n a) e 3 | cat;;\n b) e 4 | cat\n esac", ((3, 0), ())),
        (b"while e 3 | false; do e 4 | cat; done", ()),
        (b"f() { e 3 | cat; }; f; echo $(e 4 | cat); (e 5 | cat) &\nwait", ()),
        (b"(e 3 | cat) | cat", ()),
        (b"[ ! -e /no/x ] && [[ ! -e /no/x ]] && test ! -e /no/x && e 3 | cat", ((3, 0),)),
        (b"! true; e 3 | cat", ()),
    ],
)
def test_the_report_has_the_statuses_of_each_pipeline(
    place: Path, script: bytes, statuses: tuple[tuple[int, ...], ...]
) -> None:
    script = b"e() { return $1; }; " + script
    run_reporting(script, place)
    report = place.parent / "report"
    text = report.read_bytes() if report.exists() else b""
    assert parse_reports(text, planned(script)) == statuses


def test_only_failures_without_effect_on_the_exit_code_are_named() -> None:
    script = b"FOO=1 /usr/bin/pytest -x 2>&1 | grep x | tail; yes | head; diff a b | false"
    assert find_failed_stages(script, ((2, 1, 0), (141, 0), (1, 1))) == [
        FailedStage(1, "pytest", 2)
    ]
    assert find_failed_stages(script, ((2, 2, 0), (), ())) == [
        FailedStage(1, "pytest", 2),
        FailedStage(2, "grep", 2),
    ]
    assert find_failed_stages(script, ((2, 0),)) == []


@pytest.mark.parametrize(
    "script",
    [
        b"echo a | cat; echo $(if)",
        b'echo a | cat; echo "$(for x in a do echo; done)"',
        b"echo a | cat; cat <(case) >(echo) x=(${y:-$(()})",
        b"echo a | cat <<E\n$(if)\nE",
    ],
)
def test_a_script_with_a_syntax_error_in_a_substitution_is_left_alone(script: bytes) -> None:
    assert planned(script) == ()


def test_a_script_with_substitutions_is_reported() -> None:
    script = b'echo $(echo a | cat) `echo b` "$(echo $(echo c))" <(:) | cat'
    assert len(planned(script)) == 1


def test_a_negation_before_a_line_continuation_is_seen() -> None:
    assert planned(b"set -e; !\\\n true | true; echo hi") == ()


def test_a_damaged_report_is_ignored() -> None:
    pipelines = planned(b"a | b; c | d")
    assert parse_reports(b"0 1\n1 x 0\n7 1 1\n\xff\n\n", pipelines) == ()
    assert parse_reports(b"9\n1 0 2\n", pipelines) == ((), (0, 2))


@pytest.mark.parametrize(
    "script",
    [b"a | b; c | d", b"x && a | b | c || d | e; f", b"a | b", b"{ a | b; }; (c | d)"],
)
def test_the_command_line_of_a_process_is_shown_without_the_code(script: bytes) -> None:
    found = find_pipelines(script)
    assert found
    text = insert_reports(script, planned(script), b"/state/it's a file").decode()
    assert text != script.decode()
    assert without_reports(f"bash -c -- {text}") == f"bash -c -- {script.decode()}"
    assert "_nacre" not in without_reports(text[: len(text) * 2 // 3])


def test_foreign_text_in_a_report_is_ignored() -> None:
    pipelines = planned(b"false | cat; false | true")
    text = b"0 1 0\nx\n0 " + b"9" * 6000 + b" 0\n\xff 1\n1\n1 1 0 0\n"
    assert parse_reports(text, pipelines) == ((1, 0), ())


def test_long_chains_and_many_pipelines_are_read_in_no_time() -> None:
    assert find_pipelines(b"true && " * 3000 + b"false | cat")[0].programs == (b"false", b"cat")
    began = time.process_time()
    assert len(find_pipelines(b"echo a | cat\n" * 4000)) == 4000
    assert time.process_time() - began < 5
