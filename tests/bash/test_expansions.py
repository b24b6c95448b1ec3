"""Tests of `bash.expansions`."""

import pytest

from nacre.bash.expansions import find_required_parameters


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("echo $A", {"A"}),
        ('echo "x ${B} $(echo `echo $C`)"', {"B", "C"}),
        ("cat <<E\n$D\nE", {"D"}),
        ("cat <<'E'\n$D\nE", set()),
        ("echo '$E' \\$F # $G", set()),
        ("echo ${H:-x} ${I-x} ${J:=x} ${K=x}", set()),
        ("echo ${L:+x} ${M:?x} ${#N} ${O%x}", {"L", "M", "N", "O"}),
        ('x=(${P} "$Q"); echo ${R:-$S} > $T', {"P", "Q", "S", "T"}),
        ("[[ -z $U ]] && (( V > 1 ))", {"U"}),
        ("echo $(if", set()),
    ],
)
def test_the_parameters_without_a_default(script: str, names: set[str]) -> None:
    assert {each.decode() for each in find_required_parameters(script.encode())} == names
