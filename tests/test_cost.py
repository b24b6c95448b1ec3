"""Tests that the lengths of replies, which a model pays for, match docs/guide/costs.md."""

import re

import pytest
from bench import cost

from tests.support import wardens

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cost")]


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, cost.Cost]:
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("state")
        patch.setenv("NACRE_HOME", str(state))
        found = {each.row.name: each for each in cost.measured()}
        wardens.end(state)
        return found


def test_nacre_is_near_the_smallest_but_for_one_row_that_the_page_explains(
    paid: dict[str, cost.Cost],
) -> None:
    assert len(paid) >= 10
    far = {name: each.characters for name, each in paid.items() if not each.near}
    assert set(far) == {"100,000 different lines"}
    (characters,) = far.values()
    assert characters["nacre"] < 20_000 + 200
    assert characters["nacre"] < min(characters["harness"], characters["pi"])


def test_where_much_is_printed_it_is_the_smallest_by_far(paid: dict[str, cost.Cost]) -> None:
    large = [each for each in paid.values() if each.row.large]
    assert len(large) >= 4
    assert [each.row.name for each in large if not each.far] == []


def test_the_line_that_matters_is_always_there(paid: dict[str, cost.Cost]) -> None:
    assert [name for name, each in paid.items() if not each.kept["nacre"]] == []


def test_the_page_says_what_is_measured(paid: dict[str, cost.Cost]) -> None:
    page = cost.PAGE.read_text()
    for name, each in paid.items():
        row = re.search(rf"^\| {re.escape(name)} \| ([\d,]+)", page, re.MULTILINE)
        assert row is not None, name
        said = int(row[1].replace(",", ""))
        # Run ids and paths can be longer or shorter on another machine.
        assert abs(said - each.characters["nacre"]) <= 0.05 * said + 10, name
