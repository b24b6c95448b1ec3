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


def test_nacre_is_near_the_smallest_but_for_two_rows_that_the_page_explains(
    paid: dict[str, cost.Cost],
) -> None:
    assert len(paid) >= 10
    far = {name: each.characters for name, each in paid.items() if not each.near}
    assert set(far) == {"100,000 different lines", "noisy install"}
    characters = far["100,000 different lines"]
    assert characters["nacre"] < 20_000 + 200
    assert characters["nacre"] < min(characters["harness"], characters["pi"])


def test_where_much_is_printed_it_is_the_smallest_by_far(paid: dict[str, cost.Cost]) -> None:
    large = [each for each in paid.values() if each.row.large]
    assert len(large) >= 3
    assert [each.row.name for each in large if not each.far] == []


def test_the_line_that_matters_is_always_there(paid: dict[str, cost.Cost]) -> None:
    assert [name for name, each in paid.items() if not each.shows_line["nacre"]] == []


def test_the_page_says_what_is_measured(paid: dict[str, cost.Cost]) -> None:
    page = cost.PAGE.read_text()
    for name, each in paid.items():
        row = re.search(rf"^\| {re.escape(name)} \| ([\d,]+)", page, re.MULTILINE)
        assert row is not None, name
        said = int(row[1].replace(",", ""))
        # Run ids and paths can be longer or shorter on another machine.
        assert abs(said - each.characters["nacre"]) <= 0.05 * said + 10, name


# Tests of everyday tasks.


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[cost.TaskCost]:
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("state")
        patch.setenv("NACRE_HOME", str(state))
        found = list(cost.measured_tasks(["nacre"]))
        wardens.end(state)
        return found


def test_the_failing_line_is_in_a_reply_of_every_task(done: list[cost.TaskCost]) -> None:
    assert len(done) >= 12
    assert [each.task.name for each in done if not each.shows_line["nacre"]] == []


def test_the_page_says_what_the_tasks_take(done: list[cost.TaskCost]) -> None:
    page = cost.PAGE.read_text()
    for each in done:
        row = re.search(
            rf"^\| {re.escape(each.task.name)} \| ([\d,]+) in (\d+)", page, re.MULTILINE
        )
        assert row is not None, each.task.name
        said = int(row[1].replace(",", ""))
        assert int(row[2]) == len(each.task.calls["nacre"])
        assert abs(said - each.characters["nacre"]) <= 0.05 * said + 20, each.task.name
