"""`nacre read`: print the output of a run: all of it, a range of lines, or matching lines."""

import argparse
import re
from collections.abc import Iterator
from typing import BinaryIO

from nacre.frontends.cli.common import (
    UsageError,
    find_current_workspace,
    pause,
    print_note,
    print_problem,
    write_all,
)
from nacre.frontends.cli.run_formatting import describe_error, describe_run
from nacre.model.events import Stream
from nacre.model.requests import Between, Last
from nacre.store import stored_run
from nacre.store.output_range import locate, read_range
from nacre.text.clean import human_size
from nacre.text.line_index import LineIndex
from nacre.text.search import compile_pattern, grep, number_lines

_PAUSE = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="run id: 17, r17 or artifact://17")
    parser.add_argument("--from", dest="first", type=int, metavar="A", help="first line")
    parser.add_argument("--to", dest="last", type=int, metavar="B", help="last line")
    parser.add_argument("--lines", "-n", type=int, metavar="N", help="the last N lines")
    parser.add_argument("--grep", metavar="REGEX", help="only matching lines, with their numbers")
    parser.add_argument("--context", type=int, metavar="C", help="C lines around each match")
    parser.add_argument(
        "--errors", action="store_true", help="stderr, where the contract keeps it apart"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="also print what follows, live")
    parser.add_argument(
        "--cwd", metavar="D", help="directory of the workspace (default: the current one)"
    )


def main(options: argparse.Namespace) -> int:
    try:
        _check_options(options)
        place = find_current_workspace(options.cwd)
        run = stored_run.find_run(stored_run.parse_run_id(options.run), place)
        stream = Stream.ERRORS if options.errors else Stream.OUTPUT
        if options.follow:
            _follow(run, place, stream, options)
            return 0
        with run.open(stream) as source:
            for data in _select_blocks(source, run.line_index(stream), options):
                write_all(1, data)
    except BrokenPipeError:
        # `main` of the command line exits with code 141 if the reader of stdout has closed the pipe
        raise
    except UsageError as error:
        print_problem(str(error))
        return 2
    except (LookupError, OSError) as error:
        print_problem(describe_error(error))
        return 1
    errors = run.size(Stream.ERRORS) if stream is Stream.OUTPUT else None
    if errors and not run.size():
        print_problem(
            f"nothing on stdout; {human_size(errors)} on stderr: nacre read {run.name} --errors"
        )
    stored = run.stored_stream(stream)
    if stored is not None and stored.problem is not None:
        print_problem(stored.problem)
    return 0


def _follow(
    run: stored_run.StoredRun, place: bytes, stream: Stream, options: argparse.Namespace
) -> None:
    """Print a run's output so far (or its last lines), then its new output until the run ends.

    After the end of the run, print on stderr how the run ended.
    """
    for data in stored_run.follow_output(run, place, stream, options.lines):
        if data:
            write_all(1, data)
        else:
            pause(_PAUSE)
    print_note(describe_run(stored_run.find_run(run.number, place)))


def _check_options(options: argparse.Namespace) -> None:
    chosen = [
        name
        for name, given in (
            ("--from/--to", options.first is not None or options.last is not None),
            ("--lines", options.lines is not None),
            ("--grep", options.grep is not None),
        )
        if given
    ]
    if options.follow and (options.grep is not None or options.last is not None):
        raise UsageError(
            "--follow cannot be combined with --grep, --from or --to; pipe it into grep"
        )
    if options.follow and options.first is not None:
        raise UsageError("--follow starts at the beginning, or with --lines N at the last N lines")
    if options.context is not None and options.grep is None:
        raise UsageError("--context needs --grep; give both, or leave --context out")
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other; choose one")
    for name in ("first", "last", "lines", "context"):
        value = getattr(options, name)
        if value is not None and value < (name in ("first", "last")):
            raise UsageError("line numbers start at 1, and counts are 0 or more")


def _select_blocks(
    source: BinaryIO, index: LineIndex, options: argparse.Namespace
) -> Iterator[bytes]:
    if options.grep is not None:
        yield from _grep_lines(source, options.grep, options.context or 0)
    elif options.lines is not None:
        yield from read_range(source, *locate(source, Last(lines=options.lines), index))
    else:
        part = Between(first=options.first or 1, last=options.last)
        yield from read_range(source, *locate(source, part, index))


def _grep_lines(source: BinaryIO, pattern: str, context: int) -> Iterator[bytes]:
    """Yield the output lines that match a regular expression, with their line numbers and `context`
    lines around each match. Raises UsageError for an invalid regular expression."""
    try:
        wanted = compile_pattern(pattern)
    except re.error as error:
        raise UsageError(f"--grep {pattern} is not a regular expression: {error}") from None
    found = (each for each in grep(source, wanted, context) if not isinstance(each, int))
    for line in number_lines(found, separate=bool(context)):
        yield line.encode("utf-8", "surrogateescape")
