"""Tests of `nacre rpc` with the RPC clients of pi and oh-my-pi, as these projects publish them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import PROGRAM
from tests.support.helpers import named

CLIENTS = Path(sys.prefix) / "node-clients"
HERE = Path(__file__).parent
LAUNCHER = HERE.parents[1] / "examples" / "pi_launcher.mjs"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CLIENTS.exists() or shutil.which("node") is None,
        reason="DID NOT RUN: the clients of pi are not here; `make test-adapters` installs them",
    ),
]


def find_bun() -> str:
    """Return the path of bun, which npm unpacks into a package for the machine's processor."""
    found = sorted((CLIENTS / "tools" / "node_modules" / "@oven").glob("bun-*/bin/bun"))
    works = [str(each) for each in found if subprocess.run([each, "--version"]).returncode == 0]
    return works[0]


def drive(runtime: str, client: Path, cwd: Path, **options: object) -> dict[str, Any]:
    """Run the driver with one client. A client that hangs fails the test after a minute."""
    path = f"{Path(runtime).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [runtime, HERE / "drive_pi_client.mjs", client, json.dumps({"cwd": str(cwd), **options})],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={**os.environ, "PATH": path, "NACRE": PROGRAM},
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def check(seen: dict[str, Any]) -> None:
    expected = {
        "output": "out\nerr\n",
        "exitCode": 3,
        "cancelled": False,
        "truncated": False,
        "totalLines": 2,
        "totalBytes": 8,
        "outputLines": 2,
        "outputBytes": 8,
        "run": "r1",
    }
    assert seen["bash"] == expected
    assert seen["streamed"]["output"] == "1\n2\n3\n"
    for result in seen["aborted"]:
        assert (result["output"], result["cancelled"]) == ("[Command cancelled]\n", True)
        assert "exitCode" not in result
    assert seen["abortedAfter"] < 1000
    assert not named("sleep 71.91")
    long = seen["long"]
    assert (long["totalLines"], long["truncated"]) == (20000, True)
    assert long["output"].endswith("\n19999\n20000\n")
    assert isinstance(long["artifactId"], str)
    assert seen["unknown"].startswith("there is no type 'get_state'")
    assert seen["unknownAfter"] < 5000
    assert seen["after"]["output"] == "still here\n"


def test_oh_my_pi_18_starts_nacre_as_its_command(tmp_path: Path) -> None:
    client = CLIENTS / "oh-my-pi-18.3.4/node_modules/@oh-my-pi/pi-coding-agent"
    client /= "src/modes/rpc/rpc-client.ts"
    check(drive(find_bun(), client, tmp_path, command=[PROGRAM], provider="x", model="y"))


def test_oh_my_pi_14_starts_nacre_by_the_launcher(tmp_path: Path) -> None:
    client = CLIENTS / "oh-my-pi-14.9.9/node_modules/@oh-my-pi/pi-coding-agent"
    client /= "src/modes/rpc/rpc-client.ts"
    check(drive(find_bun(), client, tmp_path, cliPath=str(LAUNCHER), sessionDir="/x"))


def test_pi_starts_nacre_by_the_launcher(tmp_path: Path) -> None:
    client = CLIENTS / "pi-0.73.1/node_modules/@mariozechner/pi-coding-agent"
    client /= "dist/modes/rpc/rpc-client.js"
    seen = drive(str(shutil.which("node")), client, tmp_path, cliPath=str(LAUNCHER), provider="x")
    check(seen)
    assert "bash_output" in seen["events"]  # this client passes on events that it does not know
