"""`nacre read`: the output of a run, all of it or some lines, for pipes and for people."""

import argparse
import re
from collections.abc import Iterator
from typing import BinaryIO

from nacre.events import Stream
from nacre.fronts.cli.common import UsageError, complain, remark, rest, write_all
from nacre.fronts.cli.runs import here, problem, said
from nacre.lines import Lines
from nacre.search import compiled, grep
from nacre.store import reading
from nacre.text import human_size

_PAUSE = 0.05


def main(options: argparse.Namespace) -> int:
    try:
        _check(options)
        place = here(options.cwd)
        run = reading.find(reading.number(options.run), place)
        stream = Stream.ERRORS if options.errors else Stream.OUTPUT
        if options.follow:
            _follow(run, place, stream, options)
            return 0
        with run.open(stream) as source:
            for data in _chosen(source, run.index(stream), options):
                write_all(1, data)
    except BrokenPipeError:
        raise  # whoever read us has seen enough
    except UsageError as error:
        complain(str(error))
        return 2
    except (LookupError, OSError) as error:
        complain(problem(error))
        return 1
    errors = run.size(Stream.ERRORS) if stream is Stream.OUTPUT else None
    if errors and not run.size():
        complain(
            f"nothing on stdout; {human_size(errors)} on stderr: nacre read {run.name} --errors"
        )
    stored = run.stored(stream)
    if stored is not None and stored.problem is not None:
        complain(stored.problem)
    return 0


def _follow(run: reading.Run, place: bytes, stream: Stream, options: argparse.Namespace) -> None:
    """What is there, or the last lines of it, and what is yet to come; then how it ended."""
    for data in reading.follow(run, place, stream, options.lines):
        if data:
            write_all(1, data)
        else:
            rest(_PAUSE)
    remark(said(reading.find(run.number, place)))


def _check(options: argparse.Namespace) -> None:
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
        raise UsageError("--follow has no end, and no lines to choose from; pipe it into grep")
    if options.follow and options.first is not None:
        raise UsageError("--follow begins at the start, or with --lines before the end")
    if options.context is not None and options.grep is None:
        raise UsageError("--context goes with --grep; there are no lines to stand around")
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} do not go together; choose one")
    for name in ("first", "last", "lines", "context"):
        value = getattr(options, name)
        if value is not None and value < (name in ("first", "last")):
            raise UsageError("lines are counted from 1, and there is no negative number of them")


def _chosen(source: BinaryIO, index: Lines, options: argparse.Namespace) -> Iterator[bytes]:
    if options.grep is not None:
        yield from _found(source, options.grep, options.context or 0)
    elif options.lines is not None:
        yield from reading.tail(source, options.lines)
    else:
        yield from reading.lines(source, options.first or 1, options.last, index)


def _found(source: BinaryIO, pattern: str, context: int) -> Iterator[bytes]:
    """As grep -n shows it: `12:` before a line that matches, `11-` before one that stands near."""
    try:
        wanted = compiled(pattern)
    except re.error as error:
        raise UsageError(f"--grep {pattern} is no regular expression: {error}") from None
    last = None
    for found in grep(source, wanted, context):
        if isinstance(found, int):
            continue
        if context and last is not None and found.line > last + 1:
            yield b"--\n"
        last = found.line
        sign = ":" if found.matches else "-"
        yield f"{found.line}{sign}{found.text}\n".encode("utf-8", "surrogateescape")
