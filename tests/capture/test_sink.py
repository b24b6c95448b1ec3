"""Tests of the capture: head, tail, exact counts, and the spill file."""

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.capture.sink import Sink
from nacre.capture.window import Window
from nacre.model.outcome import Capture, Saved
from nacre.model.plan import Keep, Spill, When

keeps = st.integers(0, 60).flatmap(
    lambda whole: st.builds(
        Keep, whole=st.just(whole), head=st.integers(0, whole), tail=st.integers(0, 60)
    )
)


def taken(keep: Keep, chunks: list[bytes], spill: Spill | None = None) -> Capture:
    sink = Sink(keep, spill)
    for chunk in chunks:
        borrowed = bytearray(chunk)
        sink.write(borrowed)
        borrowed[:] = bytes(len(borrowed))  # the pipe reader reuses its buffer in the same way
    return sink.close()


spills = st.none() | st.builds(
    Spill, when=st.sampled_from(When), limit=st.integers(0, 200), directory=st.none()
)


@given(keeps, st.lists(st.binary(min_size=1, max_size=30), max_size=12), spills)
def test_what_is_kept_depends_on_the_bytes_not_on_the_chunks_nor_the_file(
    keep: Keep, chunks: list[bytes], spill: Spill | None
) -> None:
    everything = b"".join(chunks)
    capture = taken(keep, chunks, spill)
    if capture.saved is not None and capture.saved.path is not None:
        os.unlink(capture.saved.path)
    if len(everything) <= keep.whole:
        assert (capture.head, capture.tail, capture.omitted) == (everything, b"", 0)
    else:
        rest = everything[keep.head :]
        assert capture.head == everything[: keep.head]
        assert capture.tail == (rest[-keep.tail :] if keep.tail else b"")
        assert capture.omitted == len(everything) - len(capture.head) - len(capture.tail)
    assert capture.size == len(everything)
    assert capture.newlines == everything.count(b"\n")
    assert capture.unterminated == (everything != b"" and not everything.endswith(b"\n"))


@given(keeps, st.lists(st.binary(min_size=1, max_size=30), max_size=12), st.integers(0, 200))
def test_a_spilled_file_holds_the_stream_up_to_its_limit(
    keep: Keep, chunks: list[bytes], limit: int
) -> None:
    everything = b"".join(chunks)
    capture = taken(keep, chunks, Spill(when=When.ALWAYS, limit=limit))
    assert capture.saved is not None
    assert capture.saved.path is not None
    path = Path(os.fsdecode(capture.saved.path))
    try:
        assert path.read_bytes() == everything[:limit]
        assert capture.saved.size == min(limit, len(everything))
        assert capture.saved.complete == (len(everything) <= limit)
    finally:
        path.unlink()


def test_many_tiny_chunks_become_few_objects() -> None:
    window = Window(Keep(whole=10**6, head=10**5, tail=10**5), bytearray(10**6))
    for _ in range(500_000):
        window.write(b"x")
    assert len(window._chunks) < 20


def test_short_and_long_lines_are_both_counted_exactly() -> None:
    keep = Keep(whole=10, head=5, tail=5)
    chunks = [b"a\n" * 5000, b"x" * 99999 + b"\n", b"b\n" * 7, b"", b"no end"]
    capture = taken(keep, [chunk for chunk in chunks if chunk])
    assert (capture.newlines, capture.lines, capture.unterminated) == (5008, 5009, True)


KEEP = Keep(whole=8, head=4, tail=4)


def test_spill_on_overflow_makes_no_file_for_little(tmp_path: Path) -> None:
    spill = Spill(directory=os.fsencode(tmp_path / "temporary"), when=When.OVERFLOW)
    assert taken(KEEP, [b"1234", b"5678"], spill).saved is None


def test_spill_on_overflow_holds_everything_from_the_first_byte(tmp_path: Path) -> None:
    spill = Spill(directory=os.fsencode(tmp_path), when=When.OVERFLOW)
    saved = taken(KEEP, [b"1234", b"5678", b"9"], spill).saved
    assert saved is not None
    assert saved.path is not None
    assert Path(os.fsdecode(saved.path)).read_bytes() == b"123456789"
    assert saved == Saved(path=saved.path, size=9, complete=True)


def test_a_spilled_file_is_private(tmp_path: Path) -> None:
    saved = taken(KEEP, [b"x"], Spill(directory=os.fsencode(tmp_path), when=When.ALWAYS)).saved
    assert saved is not None
    assert saved.path is not None
    assert stat.S_IMODE(os.stat(saved.path).st_mode) == 0o600


def test_a_directory_that_is_not_there_is_said_and_nothing_else() -> None:
    capture = taken(KEEP, [b"123456789"], Spill(directory=b"/nonexistent/dir"))
    assert capture.saved == Saved(
        path=None,
        size=0,
        complete=False,
        problem="the output could not be saved: no such file or directory",
    )
    assert (capture.head, capture.tail, capture.size) == (b"1234", b"6789", 9)


def test_the_disk_limit_is_enforced_and_said(tmp_path: Path) -> None:
    spill = Spill(directory=os.fsencode(tmp_path), limit=2048)
    saved = taken(KEEP, [b"x" * 1000] * 5, spill).saved
    assert saved is not None
    assert saved.path is not None
    assert os.path.getsize(saved.path) == 2048
    assert saved.problem == "the output is saved up to the disk limit of 2KB"


def test_a_full_disk_ends_the_file_and_not_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(KEEP, Spill(directory=os.fsencode(tmp_path), when=When.ALWAYS))
    sink.write(b"first")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    sink.write(b"second")
    monkeypatch.undo()
    sink.write(b"third")
    capture = sink.close()
    assert capture.size == 16
    assert capture.saved is not None
    assert capture.saved.size == 5
    assert capture.saved.problem == (
        "the output could not be saved past 5 bytes: no space left on device"
    )


@pytest.mark.parametrize("wrong", [{"whole": -1}, {"head": 99}, {"tail": -5}])
def test_sizes_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is not possible"):
        Keep(**({"whole": 10, "head": 5, "tail": 5} | wrong))


def test_a_tail_that_cannot_be_read_back_is_left_out_and_counted(tmp_path: Path) -> None:
    """Truncate the spill file while the capture is still being written."""
    sink = Sink(KEEP, Spill(directory=os.fsencode(tmp_path), when=When.ALWAYS))
    sink.write(b"0123456789")
    (path,) = tmp_path.glob("nacre-*.log")
    path.write_bytes(b"")
    capture = sink.close()
    assert (capture.head, capture.tail, capture.omitted) == (b"0123", b"", 6)
