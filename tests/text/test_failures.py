"""Tests of `text.failures`: lines of an output that look like failures."""

import pytest

from nacre.text.failures import FailureLine, FailureSearch, score_line


def find_failures(
    sections: list[tuple[int, bytes]], count: int
) -> tuple[list[FailureLine], int | None]:
    """Return the lines that the search finds, and the line at which it stopped."""
    search = FailureSearch(count)
    stops = [stop for first, data in sections if (stop := search.add(first, data)) is not None]
    return search.best(), stops[0] if stops else None


FAILURES = """\
not ok 1234 - adds numbers
FAILED tests/test_a.py::test_b - assert 1 == 2
tests/test_a.py::test_b FAILED                       [ 50%]
E       AssertionError: 529 != 0
Traceback (most recent call last):
ValueError: too many values to unpack
thread 'main' panicked at src/main.rs:2:5
panic: runtime error: index out of range
--- FAIL: TestAdd (0.00s)
FAIL src/app.test.js
    ✕ adds (3 ms)
test tests::it_adds ... FAILED
src/a.c:3:5: error: expected ';'
src/a.ts(3,5): error TS2304: Cannot find name 'x'.
error[E0308]: mismatched types
npm ERR! code ELIFECYCLE
2026-11-16 10:00:00 ERROR could not connect
fatal: not a git repository
java.lang.NullPointerException: Cannot invoke
Segmentation fault (core dumped)
main.o: undefined reference to `foo'
Tests run: 5, Failures: 1, Errors: 0, Skipped: 0
✖ 3 problems (3 errors, 0 warnings)
=== 1 failed, 0 errors ===
10 examples, 0 failures, 1 error occurred outside of examples
Failures: 0, Errors: 3
E       AssertionError: expected no errors, got ['x']
Error: no error handler registered for x
make[1]: *** No rule to make target 'foo.o', needed by 'all'.  Stop.
bash: line 1: foo: command not found
cannot open file: No such file or directory
/bin/deploy.sh: Permission denied
E: Unable to locate package foo
Killed
Aborted (core dumped)
undefined symbol: foo
ld: symbol(s) not found for architecture x86_64
psql: could not connect to server
"""
FINE = """\
ok 3 - an error is caught
tests/test_a.py::test_error_is_raised PASSED         [ 50%]
test_failure_is_reported (tests.Suite) ... ok
0 errors, 0 warnings
Failures: 0
no failures found
 ✓ shows an error for bad input (2 ms)
PASS src/error.test.js
src/error.py
-rw-r--r-- 1 root root 120 Nov 18 20:00 error.py
# fail 0
errors 0
Error count: 0
failed: none
compiled without errors
[       OK ] Error.Test (0 ms)
[ RUN      ] FailTest.Error
GET /error 200
/usr/lib/python3/errors.py
"""


@pytest.mark.parametrize("line", FAILURES.splitlines())
def test_a_failing_line_is_found_among_many_others(line: str) -> None:
    lines = [f"ok {number} - an error is caught" for number in range(3000)]
    data = "\n".join([*lines[:1234], line, *lines[1234:]]).encode()
    (found,), stopped = find_failures([(1, data)], 10)
    assert stopped is None
    assert (found.line, found.text) == (1235, line.rstrip())


@pytest.mark.parametrize("line", FINE.splitlines())
def test_a_line_about_success_is_no_failure(line: str) -> None:
    assert score_line(line) == 0


def test_a_message_that_repeats_does_not_hide_the_others() -> None:
    lines = [f"ERROR: retry {number} failed" for number in range(5000)]
    lines[4000] = "ERROR: disk full"
    found, _ = find_failures([(1, "\n".join(lines).encode())], 3)
    assert "ERROR: disk full" in {each.text for each in found}


def test_many_lines_without_failures_do_not_hide_one() -> None:
    lines = [*["no failures"] * 30_000, "FAIL: test_real broke", *["no failures"] * 3000]
    found, stopped = find_failures([(1, "\n".join(lines).encode())], 10)
    assert [each.line for each in found] == [30_001]
    assert stopped is None


def test_a_count_of_zero_does_not_hide_a_count_of_failures() -> None:
    lines = [*["tests: 10, failures: 0"] * 3, "tests: 12, failures: 3"]
    found, _ = find_failures([(1, "\n".join(lines).encode())], 10)
    assert [each.line for each in found] == [4]


def test_equal_lines_are_listed_once_and_counted() -> None:
    lines = [*["ERROR: retry"] * 1000, *(f"ERROR: disk {number} full" for number in range(40))]
    search = FailureSearch(3)
    assert search.add(1, "\n".join(lines).encode()) is None
    assert [each.text for each in search.best()] == [
        *("ERROR: retry", "ERROR: disk 0 full", "ERROR: disk 1 full")
    ]
    assert search.found == 1040


def test_line_numbers_go_on_from_section_to_section() -> None:
    sections = [(1, b"a\nb\n"), (3, b"panic: x\n"), (700, b"c\npanic: y")]
    assert [each.line for each in find_failures(sections, 10)[0]] == [3, 701]


def test_a_search_that_takes_too_long_says_where_it_stopped() -> None:
    section = "\n".join("fail " + "a error " * 3000 for _ in range(50)).encode()
    found, stopped = find_failures([(1 + 50 * number, section) for number in range(200)], 10)
    assert [each.line for each in found] == [1]
    assert stopped is not None
