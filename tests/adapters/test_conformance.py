"""Tests of `nacre mcp --http` with the official conformance suite of MCP.

Most scenarios of the suite call tools, resources and prompts that the suite expects of a special
test server. The table `SCENARIOS` gives, for each scenario that does not apply to nacre, the
reason.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.test_pi_clients import CLIENTS, find_bun
from tests.support import wardens
from tests.support.command_line import PROGRAM

SUITE = CLIENTS / "tools/node_modules/@modelcontextprotocol/conformance/dist/index.js"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not SUITE.exists(),
        reason="DID NOT RUN: the conformance suite is not here; `make test-adapters` installs it",
    ),
]

OWN_TOOL = "the scenario calls a tool that only a test server has"
OWN_RESOURCE = "the scenario reads a resource that only a test server has"
NO_PROMPTS = "nacre declares no prompts"
NO_REQUESTS = "nacre sends no requests to the client"

# Scenarios of the suite; None: the scenario applies and must pass, else why it does not apply.
SCENARIOS: dict[str, str | None] = {
    "server-initialize": None,
    "logging-set-level": None,
    "ping": None,
    "completion-complete": None,
    "tools-list": None,
    "tools-call-simple-text": None,  # an unknown tool is answered with text, too
    "tools-call-image": OWN_TOOL,
    "tools-call-audio": OWN_TOOL,
    "tools-call-embedded-resource": OWN_TOOL,
    "tools-call-mixed-content": OWN_TOOL,
    "tools-call-with-logging": OWN_TOOL,
    "tools-call-error": None,
    "tools-call-with-progress": OWN_TOOL,
    "tools-call-sampling": NO_REQUESTS,
    "tools-call-elicitation": NO_REQUESTS,
    "json-schema-2020-12": OWN_TOOL,
    "elicitation-sep1034-defaults": NO_REQUESTS,
    # The scenario calls a tool of the test server. The scenario also uses the protocol version
    # 2025-03-26, in which a stream does not begin with an event that has only an id.
    # `test_http_resumes_a_broken_stream` is nacre's own test with the version 2025-11-25.
    "server-sse-polling": OWN_TOOL,
    "server-sse-multiple-streams": None,
    "elicitation-sep1330-enums": NO_REQUESTS,
    "resources-list": None,
    "resources-read-text": OWN_RESOURCE,
    "resources-read-binary": OWN_RESOURCE,
    "resources-templates-read": OWN_RESOURCE,
    "resources-subscribe": OWN_RESOURCE,
    "resources-unsubscribe": OWN_RESOURCE,
    "prompts-list": NO_PROMPTS,
    "prompts-get-simple": NO_PROMPTS,
    "prompts-get-with-args": NO_PROMPTS,
    "prompts-get-embedded-resource": NO_PROMPTS,
    "prompts-get-with-image": NO_PROMPTS,
    "dns-rebinding-protection": None,
}


def run_suite(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [find_bun(), SUITE, *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("conformance")
    server = subprocess.Popen(
        [PROGRAM, "mcp", "--http", "0", "--no-token"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "NACRE_HOME": f"{place}/home"},
    )
    assert server.stderr is not None
    found = re.search(r"http://\S+/mcp", server.stderr.readline())
    assert found is not None
    yield found[0]
    server.terminate()
    assert server.wait(20) == 143
    server.stderr.close()
    wardens.end(place)


def test_the_table_has_every_scenario() -> None:
    listed = run_suite("list", "--server")
    assert re.findall(r"(?m)^ +- (\S+)", listed.stdout) == [*SCENARIOS]


@pytest.mark.xdist_group("conformance")
@pytest.mark.parametrize("scenario", [name for name, why in SCENARIOS.items() if why is None])
def test_scenario(url: str, scenario: str) -> None:
    done = run_suite("server", "--url", url, "--scenario", scenario)
    assert done.returncode == 0, done.stdout
    assert re.search(r"Passed: (\d+)/\1, 0 failed, 0 warnings", done.stdout), done.stdout
