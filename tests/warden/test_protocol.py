"""What goes over the socket: every frame comes out as it went in, however the bytes arrive."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.model import requests
from nacre.model.events import Chunk, Full, Started, Stream
from nacre.model.findings import (
    CdLifted,
    LinesLimited,
    NeedsTerminal,
    ToolSuggested,
    TrailerAdded,
    TrailerSkipped,
    VariablesDropped,
)
from nacre.model.outcome import (
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
from nacre.model.plan import (
    AtLimit,
    CallerLimits,
    Command,
    CompletionLine,
    Keep,
    LeftoverPolicy,
    Limits,
    MakeDirectory,
    MakeFile,
    OpenStdin,
    Plan,
    Session,
    Spill,
    Streams,
    When,
)
from nacre.model.refusals import BadDirectory, CalledOff, DirectoryProblem, TooMany
from nacre.model.requests import (
    AlreadyStarted,
    Done,
    IdempotencyKey,
    ListenOptions,
    Rejected,
    Running,
)
from nacre.model.wait_conditions import (
    Conditions,
    FileExists,
    HttpAnswered,
    HttpAnswers,
    OutputIdle,
    OutputMatches,
    PortOpen,
)
from nacre.warden import protocol
from nacre.warden.protocol import (
    Adopt,
    Cancel,
    Credit,
    DetachNow,
    EventFrame,
    FrameBuffer,
    FrameTooLong,
    FromClient,
    FromWarden,
    Hello,
    Leaving,
    Problem,
    RequestFrame,
    ResponseFrame,
    Retire,
    Welcome,
)

PLAN = Plan(
    command=Command(
        original=b"echo \xff",
        script=b"echo \xff",
        cwd=b"/w\xffrk",
        env={b"A": b"\xff", b"B": b""},
        caller_limits=CallerLimits(umask=0o022, limits=((1024, -1), (0, 0))),
    ),
    streams=Streams.SEPARATE,
    limits=Limits(timeout=1.5),
    keep=Keep(whole=1, head=1, tail=0),
    spill=Spill(),
    stdin=OpenStdin(initial=b"x"),
    completion_line=CompletionLine(zero="a", exited="b", killed="c", error="d"),
    chores=(MakeFile(path=b"/p", data=b"d"),),
)
OUTCOME = Outcome(
    run="r1",
    ending=TimedOut(1.0, Killed(9)),
    output=Capture(head=b"\xff", size=1, saved=Saved(path=b"/p", size=1, complete=True)),
    errors=Capture(),
    left_running=(Survivor(pid=1, started=2, command="sleep"),),
)
EVIDENCE = HttpAnswered(condition=HttpAnswers("u"), status=200, foreign_pid=6)
FULL = requests.StartRun(  # nothing is as by default
    plan=Plan(
        command=Command(
            original=b"cd /w; x",
            script=b"x",
            cwd=b"/w",
            cwd_given=True,
            call_env={b"A": b"1"},
            env={},
        ),
        shell=b"/sh",
        limits=Limits(timeout=1.0, grace=3.0, drain=0.5, kill_wait=4.0),
        keep=Keep(whole=3, head=1, tail=2),
        spill=Spill(directory=b"/t", when=When.ALWAYS, limit=9, then=AtLimit.CLOSE),
        stdin=b"in",
        leftovers=LeftoverPolicy.END,
        session=Session(
            workspace_key="p",
            key="k",
            name="n",
            contract="pi",
            cwd_when_decided=b"/w",
            read_only=True,
            setup_signature="s",
        ),
        lane="lane",
        chores=(MakeDirectory(path=b"/d"),),
        findings=(
            CdLifted(path=b"/w"),
            LinesLimited(head=1, tail=None),
            VariablesDropped(names=("A",)),
            ToolSuggested(tool="read", message="m", arguments={"path": "p"}),
            TrailerAdded(trailer="t", commits=1),
            TrailerSkipped(why="w"),
            NeedsTerminal(words="vi", why="w", instead="i"),
        ),
    ),
    wait_limit=1.5,
    workspace=b"/w",
    number=8,
    listen=ListenOptions(buffer=1, full=Full.SKIP),
    job=True,
    max_live=4,
    idempotency_key=IdempotencyKey(id="once", digest="d"),
    watched=True,
    until=Conditions(
        listed=(
            OutputMatches("up"),
            PortOpen(80),
            HttpAnswers("u"),
            FileExists(b"f"),
            OutputIdle(1.0),
        ),
        all=True,
        end_run=True,
    ),
)
CLIENT: list[FromClient] = [
    Hello(protocol=1, version="0.1.0"),
    RequestFrame(
        1,
        requests.StartRun(
            plan=PLAN,
            wait_limit=0.0,
            workspace=b"/w",
            number=7,
            listen=ListenOptions(buffer=1, full=Full.WAIT),
        ),
    ),
    RequestFrame(2, requests.Wait(run="r1", workspace=b"/w", wait_limit=None)),
    RequestFrame(3, requests.Write(run="r1", workspace=b"/w", data=b"\0", eof=True)),
    RequestFrame(4, requests.Signal(run="r1", signal=9)),
    RequestFrame(5, requests.End(run="r1", workspace=b"/w", signal=15, grace=0.5)),
    Cancel(1, 15),
    Credit(1, 100),
    Adopt(run="r1", workspace=b"/w", streams=(Stream.OUTPUT,), limit=5),
    Retire(),
    Hello(protocol=3, version="0.1.0"),
    DetachNow(1),
    RequestFrame(6, requests.Wait(run="r1", workspace=b"/w", wait_limit=2.5, input=True)),
    RequestFrame(7, FULL),
]
WARDEN: list[FromWarden] = [
    Welcome(protocol=1, oldest=1, version="0.1.0", pid=5, runs=2),
    ResponseFrame(1, OUTCOME),
    ResponseFrame(2, msgspec.structs.replace(OUTCOME, ending=Exited(3), errors=None)),
    ResponseFrame(2, msgspec.structs.replace(OUTCOME, ending=Cancelled(None))),
    ResponseFrame(2, msgspec.structs.replace(OUTCOME, ending=Lost(1.0))),
    ResponseFrame(2, msgspec.structs.replace(OUTCOME, ending=NotStarted(CalledOff()))),
    ResponseFrame(3, Running(run="r1", pid=5, seconds=0.1, output=Capture(), log=b"/p")),
    ResponseFrame(4, Done(found=False)),
    ResponseFrame(5, Rejected(refusal=BadDirectory(path=b"/x", problem=DirectoryProblem.MISSING))),
    ResponseFrame(5, Rejected(refusal=TooMany(limit=1, runs=(("r1", "sleep 1"),)))),
    EventFrame(1, Started(run="r1", pid=5)),
    EventFrame(1, Chunk(run="r1", stream=Stream.ERRORS, data=b"\xff", skipped=3)),
    Leaving(),
    Problem("no"),
    Welcome(protocol=3, oldest=1, version="0.1.0", pid=5, runs=0),
    ResponseFrame(
        6,
        msgspec.structs.replace(
            OUTCOME,
            ending=Exited(0),
            seconds=1.5,
            terminated=(Survivor(pid=3, started=4, command="x", ports=(80,)),),
            out_of_memory=True,
            stored=True,
            session_saved=False,
            previous_state_lost=True,
            session_problem="why",
        ),
    ),
    ResponseFrame(
        7,
        Running(run="r1", pid=5, seconds=0.1, output=Capture(), waits_for_input=True, met=EVIDENCE),
    ),
    ResponseFrame(8, AlreadyStarted(run="r1")),
]


@pytest.mark.parametrize("frame", CLIENT, ids=lambda frame: type(frame).__name__)
def test_what_a_client_says_arrives(frame: FromClient) -> None:
    (data,) = _parsed([protocol.encode_frame(frame)])
    assert protocol.decode_client_frame(data) == frame


@pytest.mark.parametrize("frame", WARDEN, ids=lambda frame: type(frame).__name__)
def test_what_the_warden_says_arrives(frame: FromWarden) -> None:
    (data,) = _parsed([protocol.encode_frame(frame)])
    assert protocol.decode_warden_frame(data) == frame


@given(st.lists(st.sampled_from(CLIENT), max_size=8), st.lists(st.integers(1, 400), max_size=30))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sent: list[FromClient], cuts: list[int]
) -> None:
    stream = b"".join(map(protocol.encode_frame, sent))
    pieces = []
    for cut in cuts:
        pieces.append(stream[:cut])
        stream = stream[cut:]
    assert [protocol.decode_client_frame(data) for data in _parsed([*pieces, stream])] == sent


def test_a_frame_that_was_not_handled_to_the_end_comes_again() -> None:
    incoming = FrameBuffer()
    incoming.pieces.append(
        protocol.encode_frame(Credit(1, 2)) + protocol.encode_frame(Credit(3, 4))
    )
    first = next(incoming.frames())
    assert list(incoming.frames())[:1] == [first]
    assert list(incoming.frames()) == []


def test_a_frame_that_is_too_long_is_refused_by_its_first_four_bytes() -> None:
    incoming = FrameBuffer()
    incoming.pieces.append(b"\xff\xff\xff\xff")
    with pytest.raises(FrameTooLong):
        next(incoming.frames())


def test_fields_that_nobody_knows_are_passed_over() -> None:
    """So that a later version may add one."""
    said = msgspec.msgpack.encode({"type": "Hello", "protocol": 9, "version": "9", "new": [1]})
    assert protocol.decode_client_frame(said) == Hello(protocol=9, version="9")


@given(st.binary(max_size=200))
def test_nonsense_is_an_error_and_never_more(data: bytes) -> None:
    try:
        protocol.decode_client_frame(data)
    except msgspec.MsgspecError:
        return
    except Exception as error:
        raise AssertionError(f"{data!r} raised {error!r}") from error


def _parsed(pieces: list[bytes]) -> list[bytes]:
    incoming, found = FrameBuffer(), []
    for piece in pieces:
        if piece:
            incoming.pieces.append(piece)
            found += list(incoming.frames())
    return found
