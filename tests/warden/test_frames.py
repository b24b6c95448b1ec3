"""What goes over the socket: every frame comes out as it went in, however the bytes arrive."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre import asks
from nacre.asks import Done, Earlier, Evidence, No, Request, Running, Until, Wishes
from nacre.events import Chunk, Full, Started, Stream
from nacre.findings import (
    Dropped,
    Lifted,
    Limited,
    NeedsTerminal,
    Signed,
    Suggested,
    Unsigned,
)
from nacre.outcome import (
    Cancelled,
    Capture,
    Exited,
    Killed,
    Lost,
    NotStarted,
    Outcome,
    Saved,
    Survivor,
    TimedOut,
)
from nacre.plan import (
    AtExit,
    AtLimit,
    Command,
    Epitaph,
    Held,
    Keep,
    Limits,
    MakeDirectory,
    MakeFile,
    Plan,
    Session,
    Spill,
    Streams,
    Terms,
    When,
)
from nacre.refusals import BadDirectory, CalledOff, DirectoryProblem, TooMany
from nacre.warden import frames
from nacre.warden.frames import (
    Adopt,
    Answered,
    Asked,
    Cancel,
    Enough,
    FromClient,
    FromWarden,
    Heard,
    Hello,
    Incoming,
    Leaving,
    More,
    Problem,
    Retire,
    TooLong,
    Welcome,
)

PLAN = Plan(
    command=Command(
        given=b"echo \xff",
        script=b"echo \xff",
        cwd=b"/w\xffrk",
        env={b"A": b"\xff", b"B": b""},
        terms=Terms(umask=0o022, limits=((1024, -1), (0, 0))),
    ),
    streams=Streams.SEPARATE,
    limits=Limits(timeout=1.5),
    keep=Keep(whole=1, head=1, tail=0),
    spill=Spill(),
    stdin=Held(first=b"x"),
    epitaph=Epitaph(zero="a", exited="b", killed="c", error="d"),
    chores=(MakeFile(path=b"/p", data=b"d"),),
)
OUTCOME = Outcome(
    run="r1",
    ending=TimedOut(1.0, Killed(9)),
    output=Capture(head=b"\xff", size=1, saved=Saved(path=b"/p", size=1, complete=True)),
    errors=Capture(),
    left_running=(Survivor(pid=1, started=2, command="sleep"),),
)
EVIDENCE = Evidence(until=Until(port=80), line=3, text="up", pid=5, status=200, stranger=6)
FULL = asks.Run(  # nothing is as by default
    plan=Plan(
        command=Command(
            given=b"cd /w; x", script=b"x", cwd=b"/w", placed=True, extra={b"A": b"1"}, env={}
        ),
        shell=b"/sh",
        limits=Limits(timeout=1.0, grace=3.0, drain=0.5, surrender=4.0),
        keep=Keep(whole=3, head=1, tail=2),
        spill=Spill(directory=b"/t", when=When.ALWAYS, limit=9, then=AtLimit.CLOSE),
        stdin=b"in",
        leave=AtExit.END,
        session=Session(
            place="p",
            key="k",
            name="n",
            contract="pi",
            stood=b"/w",
            apart=True,
            setup="s",
        ),
        lane="lane",
        chores=(MakeDirectory(path=b"/d"),),
        findings=(
            Lifted(path=b"/w"),
            Limited(head=1, tail=None),
            Dropped(names=("A",)),
            Suggested(tool="read", message="m", arguments={"path": "p"}),
            Signed(trailer="t", commits=1),
            Unsigned(why="w"),
            NeedsTerminal(words="vi", why="w", instead="i"),
        ),
    ),
    patience=1.5,
    workspace=b"/w",
    number=8,
    wishes=Wishes(buffer=1, full=Full.SKIP),
    job=True,
    most=4,
    request=Request(id="once", digest="d"),
    watched=True,
    until=(Until(output="up"), Until(http="u"), Until(file=b"f"), Until(idle=1.0)),
)
CLIENT: list[FromClient] = [
    Hello(protocol=1, version="0.1.0"),
    Asked(
        1,
        asks.Run(
            plan=PLAN,
            patience=0.0,
            workspace=b"/w",
            number=7,
            wishes=Wishes(buffer=1, full=Full.WAIT),
        ),
    ),
    Asked(2, asks.Wait(run="r1", workspace=b"/w", patience=None)),
    Asked(3, asks.Write(run="r1", workspace=b"/w", data=b"\0", eof=True)),
    Asked(4, asks.Signal(run="r1", signal=9)),
    Asked(5, asks.End(run="r1", workspace=b"/w", signal=15, grace=0.5)),
    Cancel(1, 15),
    More(1, 100),
    Adopt(run="r1", workspace=b"/w", streams=(Stream.OUTPUT,), limit=5),
    Retire(),
    Hello(protocol=3, version="0.1.0"),
    Enough(1),
    Asked(6, asks.Wait(run="r1", workspace=b"/w", patience=2.5, input=True)),
    Asked(7, FULL),
]
WARDEN: list[FromWarden] = [
    Welcome(protocol=1, oldest=1, version="0.1.0", pid=5, runs=2),
    Answered(1, OUTCOME),
    Answered(2, msgspec.structs.replace(OUTCOME, ending=Exited(3), errors=None)),
    Answered(2, msgspec.structs.replace(OUTCOME, ending=Cancelled(None))),
    Answered(2, msgspec.structs.replace(OUTCOME, ending=Lost(1.0))),
    Answered(2, msgspec.structs.replace(OUTCOME, ending=NotStarted(CalledOff()))),
    Answered(3, Running(run="r1", pid=5, seconds=0.1, output=Capture(), log=b"/p")),
    Answered(4, Done(found=False)),
    Answered(5, No(refusal=BadDirectory(path=b"/x", problem=DirectoryProblem.MISSING))),
    Answered(5, No(refusal=TooMany(most=1, runs=(("r1", "sleep 1"),)))),
    Heard(1, Started(run="r1", pid=5)),
    Heard(1, Chunk(run="r1", stream=Stream.ERRORS, data=b"\xff", skipped=3)),
    Leaving(),
    Problem("no"),
    Welcome(protocol=3, oldest=1, version="0.1.0", pid=5, runs=0),
    Answered(
        6,
        msgspec.structs.replace(
            OUTCOME,
            ending=Exited(0),
            seconds=1.5,
            put_down=(Survivor(pid=3, started=4, command="x", ports=(80,)),),
            out_of_memory=True,
            stored=True,
            kept=False,
            forgot=True,
            unkept="why",
        ),
    ),
    Answered(
        7,
        Running(run="r1", pid=5, seconds=0.1, output=Capture(), asks=True, fired=EVIDENCE),
    ),
    Answered(8, Earlier(run="r1")),
]


@pytest.mark.parametrize("frame", CLIENT, ids=lambda frame: type(frame).__name__)
def test_what_a_client_says_arrives(frame: FromClient) -> None:
    (data,) = _parsed([frames.packed(frame)])
    assert frames.from_client(data) == frame


@pytest.mark.parametrize("frame", WARDEN, ids=lambda frame: type(frame).__name__)
def test_what_the_warden_says_arrives(frame: FromWarden) -> None:
    (data,) = _parsed([frames.packed(frame)])
    assert frames.from_warden(data) == frame


@given(st.lists(st.sampled_from(CLIENT), max_size=8), st.lists(st.integers(1, 400), max_size=30))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sent: list[FromClient], cuts: list[int]
) -> None:
    stream = b"".join(map(frames.packed, sent))
    pieces = []
    for cut in cuts:
        pieces.append(stream[:cut])
        stream = stream[cut:]
    assert [frames.from_client(data) for data in _parsed([*pieces, stream])] == sent


def test_a_frame_that_was_not_handled_to_the_end_comes_again() -> None:
    incoming = Incoming()
    incoming.pieces.append(frames.packed(More(1, 2)) + frames.packed(More(3, 4)))
    first = next(incoming.frames())
    assert list(incoming.frames())[:1] == [first]
    assert list(incoming.frames()) == []


def test_a_frame_that_is_too_long_is_refused_by_its_first_four_bytes() -> None:
    incoming = Incoming()
    incoming.pieces.append(b"\xff\xff\xff\xff")
    with pytest.raises(TooLong):
        next(incoming.frames())


def test_fields_that_nobody_knows_are_passed_over() -> None:
    """So that a later version may add one."""
    said = msgspec.msgpack.encode({"type": "Hello", "protocol": 9, "version": "9", "new": [1]})
    assert frames.from_client(said) == Hello(protocol=9, version="9")


@given(st.binary(max_size=200))
def test_nonsense_is_an_error_and_never_more(data: bytes) -> None:
    try:
        frames.from_client(data)
    except msgspec.MsgspecError:
        return
    except Exception as error:
        raise AssertionError(f"{data!r} raised {error!r}") from error


def _parsed(pieces: list[bytes]) -> list[bytes]:
    incoming, found = Incoming(), []
    for piece in pieces:
        if piece:
            incoming.pieces.append(piece)
            found += list(incoming.frames())
    return found
