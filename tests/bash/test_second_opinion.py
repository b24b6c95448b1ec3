"""Comparison of `analyze` with shfmt and with `bash -n` on the same shell text."""

import json
import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nacre.bash.analyze import analyze
from tests.support import corpus

pytestmark = pytest.mark.slow

SHFMT = Path(sys.executable).parent / "shfmt"
SCRIPTS = int(os.environ.get("NACRE_SCRIPTS", "80"))
ESCAPED = re.compile(rb"\\[`$\\\"]")

# Texts on which `analyze` disagrees with bash or shfmt, on purpose or because a fix is not
# worth the effort.
KNOWN: dict[str, tuple[bytes, bool, str]] = {
    # name: (text, whether bash accepts the text, reason for the disagreement)
    "time-alone": (b"time ; a", True, "a keyword without a command says nothing"),
    "not-alone": (b"! ; a", True, "the same"),
    "for-braces": (b"for x in a\n{ b; }", True, "no manual has it; tree-sitter does not either"),
    "test-as-body": (b"f() [[ -f x ]]", True, "a function without braces around a test"),
    "pipe-not": (b"a | ! b", False, "bash wants its ! at the front; we look through it"),
    "extglob": (b"echo @(a|b)", False, "valid once extglob is on, which an earlier line may do"),
}


def theirs(text: bytes) -> set[int] | None:
    """Return the position of each command name according to shfmt. Return None if shfmt cannot
    parse the text."""
    asked = subprocess.run(
        [SHFMT, "-ln", "bash", "--to-json"], input=text, capture_output=True, timeout=60
    )
    if asked.returncode:
        return None
    found: set[int] = set()
    _collect(json.loads(asked.stdout), text, found)
    return found


def _collect(node: Any, text: bytes, found: set[int]) -> None:
    if isinstance(node, list):
        for each in node:
            _collect(each, text, found)
    elif isinstance(node, dict):
        kind = node.get("Type")
        if kind == "CmdSubst" and node.get("Backquotes"):
            start, end = node["Pos"]["Offset"], node["End"]["Offset"]
            if ESCAPED.search(text[start:end]):
                return  # after unescaping, the inner text has no position in the script
        if kind == "CallExpr" and node.get("Args"):
            found.add(node["Args"][0]["Pos"]["Offset"])
        elif kind in ("DeclClause", "LetClause"):
            found.add(node["Pos"]["Offset"])
        for each in node.values():
            _collect(each, text, found)


def ours(text: bytes) -> set[int]:
    commands = analyze(text).commands
    return {each.words[0].start for each in commands if each.words and each.exact and not each.via}


def bash_takes(text: bytes) -> bool:
    asked = subprocess.run(["bash", "-n"], input=text, capture_output=True, timeout=60)
    return asked.returncode == 0


def _empty_names(text: bytes) -> set[int]:
    """Return the positions of command names after an expansion that is known to be empty, as in
    `$OPTION cmd`."""
    return {
        each.words[0].start
        for each in analyze(text).commands
        if each.words and text[each.start : each.start + 1] == b"$"
    }


def disagreements(text: bytes) -> list[str]:
    found = theirs(text)
    readable = analyze(text).unreadable is None
    wrong = []
    if readable != bash_takes(text):
        wrong.append(f"bash says valid: {not readable}, we say {analyze(text).unreadable}")
    if found is not None and found != ours(text):
        odd = {at for at in found ^ ours(text) if text[at : at + 1] != b"$"} - _empty_names(text)
        wrong.extend(f"at {at}: {text[at : at + 60]!r}" for at in sorted(odd)[:3])
    return wrong


def test_analyze_agrees_with_shfmt_and_bash_on_commands_of_agents() -> None:
    texts = corpus.commands()
    assert len(texts) > 150
    with ThreadPoolExecutor(2) as pool:
        found = zip(texts, pool.map(disagreements, texts), strict=True)
        assert {text: wrong for text, wrong in found if wrong} == {}


def test_analyze_agrees_with_shfmt_and_bash_on_real_scripts() -> None:
    scripts = corpus.scripts(SCRIPTS)
    if len(scripts) < min(SCRIPTS, 300):
        warnings.warn(f"only {len(scripts)} shell scripts are installed here", stacklevel=1)
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(lambda each: disagreements(each[1]), scripts)]
    assert {path: each for (path, _), each in zip(scripts, found, strict=True) if each} == {}


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"if x; then\n# nothing\nfi",
            b"f() { }",
            b"for i in a; do\n# c\ndone",
            b"{ }",
            b"{ a; }",
        ),
        *(
            b"while x; do done",
            b"if a; then b; else\nfi",
            b"cat <<E",
            b"cat <<E\n`\nE",
            b"cat <<E\n${x\nE",
        ),
        *(
            b"if a; then (b) fi",
            b"case x in esac",
            b"f() { { a; }; }",
            b"if (a) then b; fi",
            b"do",
            b"() a",
        ),
        *(
            b"a;;",
            b"in",
            b"[[ a ]] b",
            b"a arr=(1)",
            b"declare arr=(1)",
            b"echo $[1+1]",
            b"a b ((1))",
        ),
    ],
)
def test_bash_agrees_on_what_is_valid(text: bytes) -> None:
    assert (analyze(text).unreadable is None) == bash_takes(text)


@pytest.mark.parametrize("name", KNOWN)
def test_analyze_disagrees_with_bash_on_each_listed_text(name: str) -> None:
    text, takes, _ = KNOWN[name]
    assert bash_takes(text) == takes
    assert (analyze(text).unreadable is None) != takes


WRAPPED = {
    "group": b"{ %b\n}",
    "subshell": b"(%b\n)",
    "condition": b"if true; then %b\nfi",
    "loop": b"while true; do %b\nbreak; done",
    "function": b"f() { %b\n}",
    "substitution": b"x=$(%b\n)",
    "background": b"{ %b\n} &",
}


@pytest.mark.parametrize("shape", WRAPPED)
def test_commands_are_the_same_wherever_they_stand(shape: str) -> None:
    """Wrap each command of the corpus in each shape, which gives more than 1,000 scripts."""
    for text in filter(ours, corpus.commands()):
        wrapped = WRAPPED[shape] % text
        shift = WRAPPED[shape].index(b"%b")
        inside = {at - shift for at in ours(wrapped) if 0 <= at - shift < len(text)}
        assert inside == ours(text), wrapped
        assert analyze(wrapped).unreadable is None, wrapped


def test_every_position_is_exact() -> None:
    for text in corpus.commands():
        for command in analyze(text).commands:
            for word in command.words if command.exact else ():
                assert 0 <= word.start < word.end <= len(text)
                if word.text is not None and word.bare and not word.glob and not command.via:
                    written = text[word.start : word.end]
                    plain = not re.search(rb"[{~$`<>(\\]", written)
                    assert written == word.text or not plain, (text, word)
