"""A client of `nacre rpc` in fifty lines. A program in any language can do the same.

.venv/bin/python examples/with_rpc.py

Without ANTHROPIC_API_KEY the model is a script; everything else is the same.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripted import model, shown, workplace


class Rpc:
    def __init__(self, cwd: str) -> None:
        nacre = Path(sys.executable).parent / "nacre"
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([nacre, "rpc"], cwd=cwd, stdin=pipe, stdout=pipe)
        self._ids = itertools.count(1)

    def ask(
        self, type: str, hear: Callable[[str], object] = sys.stdout.write, **message: Any
    ) -> Any:
        """Send one message and return the data of its response. The callback `hear` gets each chunk
        of output as soon as the chunk arrives."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        id = next(self._ids)
        self._process.stdin.write(json.dumps({"id": id, "type": type, **message}).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            said = json.loads(line)
            if said["type"] == "bash_output":
                hear(said["chunk"])
            elif said["type"] == "response" and said.get("id") == id:
                if not said["success"]:
                    raise RuntimeError(said["error"])
                return said["data"]
        raise RuntimeError("nacre rpc has ended")

    def close(self) -> int:
        """Close the server's stdin, which ends all running commands and the server. Return the
        server's exit status."""
        self._process.communicate()
        return self._process.returncode


def main() -> str:
    with workplace() as place:
        rpc = Rpc(place)
        rpc.ask("bash", command="for i in 1 2 3; do echo $i; sleep 0.1; done")  # streams its output
        script = model(rpc.ask("schema", format="anthropic"))
        replies: list[str] = []
        while not isinstance(said := script(replies), str):
            tool, arguments = said
            replies.append(rpc.ask("call", tool=tool, arguments=arguments)["content"])
            shown(tool, arguments, replies[-1])
        assert rpc.close() == 0
        return said


if __name__ == "__main__":
    print(main())
