"""Which prompt bash would print for the `read -p` at which a script waits."""

import pytest

from nacre.bash.read_prompts import find_first_prompt, find_read_prompt


@pytest.mark.parametrize(
    ("script", "lines", "prompt"),
    [
        ("read -p 'Name? ' n", 0, "Name? "),
        ("read -pName: n", 0, "Name:"),
        ("read -rsp 'Password: ' p", 0, "Password: "),
        ("read -t 5 -p 'Sure? ' s", 0, "Sure? "),
        ("read -p 'One? ' a; read -p 'Two? ' b", 1, "Two? "),
        ("read a; read -p 'Two? ' b", 0, ""),
        ("read -p 'One? ' a", 1, ""),
        ("read -p 'A ' x < file; read -p 'B ' y", 0, "B "),
        ("while read -p '> ' line; do :; done", 3, "> "),
        ('U=ada; read -p "Hi $U? " x', 0, "Hi ada? "),
        # A prompt with unknown parts is shown as the script has it.
        ('read -p "Hi $1? " x', 0, "Hi $1? "),
        ('for i in 1 2; do read -p "$i: " x; done', 1, "$i: "),
        ('ask() { read -p "$1: " x; }; ask name', 0, "name: "),
        ('ask() { read -p "$1: " x; }; ask name; ask age', 1, "$1: "),
        # A read that the script may skip is not taken for the read at which the script waits.
        ("if test -e x; then read -p 'A ' x; fi; read -p 'B ' y", 0, ""),
        ("[ -e x ] && read -p 'A ' x; read -p 'B ' y", 0, ""),
        ("case b in a) read -p 'A ' x;; b) read -p 'B ' y;; esac", 0, ""),
        ("read -p 'A ' x; if [ $x = y ]; then read -p 'B ' z; fi", 0, "A "),
        ("read -p 'A ' x; if [ $x = y ]; then read -p 'B ' z; fi", 1, "B "),
        ("read -p 'A ' x && read -p 'B ' y; read -p 'C ' z", 0, "A "),
        ("read -p 'A ' x && read -p 'B ' y; read -p 'C ' z", 1, ""),
        ("IFS= read -rp 'A ' x; { read -p 'B ' y; }", 1, "B "),
        ("read -n1 -p 'A ' x; read -p 'B ' y", 0, ""),
        ("read -t 1 -p 'A ' x; read -p 'B ' y", 0, ""),
        ("read -rd: -p 'A ' x; read -p 'A ' y", 1, "A "),
        ("head -n1 >/dev/null; read -p 'A ' x; read -p 'B ' y", 1, ""),
        # If the order of different prompts is not known, none of them is shown.
        ("ask() { read -p 'A ' x; read -p 'B ' y; }; ask", 0, ""),
        ("read -p 'A ' x; ask() { read -p 'B ' y; }; ask", 0, ""),
    ],
)
def test_the_prompt_of_the_read_that_waits(script: str, lines: int, prompt: str) -> None:
    assert find_read_prompt(script.encode(), lines) == prompt.encode()


@pytest.mark.parametrize(
    ("script", "prompt"),
    [
        ("cd /tmp; read -p 'Name? ' n; echo $n", "Name? "),
        ("{ read -rp 'Name? ' n; }", "Name? "),
        ("read a; read -p 'Two? ' b", ""),
        ("read -p 'Name? ' n < names", ""),
        ("read -p 'Name? ' n <<< Ada", ""),
        ("echo Ada | { read -p 'Name? ' n; }", ""),
        ("exec < names; read -p 'Name? ' n", ""),
        ("read -u 3 -p 'Name? ' n 3< names", ""),
        ("exec 3< names; read -ru3 -p 'Name? ' n", ""),
        ("[ -t 0 ] && read -p 'Name? ' n", ""),
        ("ask() { read -p 'Name? ' n; }", ""),
        ("echo \"read -p 'Name? ' n\"", ""),
    ],
)
def test_the_first_prompt_that_a_script_reaches_in_any_case(script: str, prompt: str) -> None:
    assert find_first_prompt(script.encode()) == prompt.encode()
