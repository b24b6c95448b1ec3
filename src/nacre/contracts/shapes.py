"""The shape of each reply's structured part, as JSON schema: what a client may rely on.

Open, so that a later version may add to it; what is listed here stays.
"""

from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {"type": "number"}
_CODE: Final[Schema] = {"type": "integer"}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    made: Schema = {"type": "object", "properties": {**required, **(optional or {})}}
    return made | {"required": list(required)} if required else made


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return schema | {"type": [schema["type"], "null"]}


HARNESS: Final = _object(
    {}, {"stdout": _TEXT, "stderr": _TEXT, "exitCode": _CODE, "signal": _TEXT, "error": _TEXT}
)

PHOENIX: Final = _object(
    {},
    {
        "run": _TEXT,
        "seconds": _NUMBER,
        "exit_code": _CODE,
        "signal": _TEXT,
        "timed_out": _FLAG,
        "cancelled": _FLAG,
        "output": _object({"bytes": _COUNT, "lines": _COUNT, "truncated": _FLAG}),
        "left_running": _list(_object({"pid": _COUNT, "command": _TEXT})),
        "pid": _COUNT,
        "output_file": _TEXT,
        "rule": _TEXT,
        "instead": _TEXT,
    },
)

_TRUNCATION: Final = _object(
    {
        "direction": {"type": "string", "enum": ["head", "tail"]},
        "truncatedBy": _TEXT,
        "totalLines": _COUNT,
        "totalBytes": _COUNT,
        "outputLines": _COUNT,
        "outputBytes": _COUNT,
        "shownRange": _object({"start": _COUNT, "end": _COUNT}),
    },
    {"artifactId": _TEXT},
)
PI: Final = _object(
    {},
    {
        "timeoutSeconds": _NUMBER,
        "requestedTimeoutSeconds": _NUMBER,
        "wallTimeMs": _COUNT,
        "exitCode": _CODE,
        "signal": _TEXT,
        "timedOut": _FLAG,
        "aborted": _FLAG,
        "async": _object({"state": _TEXT, "jobId": _TEXT, "type": _TEXT}),
        "suggestion": _object({"tool": _TEXT, "arguments": {"type": "object"}}),
        "meta": _object({"truncation": _TRUNCATION}),
    },
)
PI_JOB: Final = _object(
    {},
    {
        "jobs": _list(
            _object(
                {
                    "id": _TEXT,
                    "type": _TEXT,
                    "status": _TEXT,
                    "label": _TEXT,
                    "durationMs": _COUNT,
                },
                {"exitCode": _CODE},
            )
        ),
        "cancelled": _list(_object({"id": _TEXT, "status": _TEXT})),
        "unknown": _list(_TEXT),
    },
)

_STATES: Final = (
    "exited",
    "killed",
    "timed_out",
    "cancelled",
    "running",
    "waiting_input",
    "not_started",
    "lost",
)
_PROCESSES: Final = _list(_object({"pid": _COUNT, "command": _TEXT, "ports": _list(_COUNT)}))
_RUN: Final[dict[str, Schema]] = {
    "state": {"type": "string", "enum": list(_STATES)},
    "exit_code": _or_null(_CODE),
    "signal": _or_null(_TEXT),
    "seconds": _NUMBER,
    "run": _or_null(_TEXT),
    "cwd": _or_null(_TEXT),
    "output": _object(
        {
            "bytes": _COUNT,
            "lines": _COUNT,
            "shown": _list(_list(_COUNT)),
            "cursor": _COUNT,
            "cut": _FLAG,
        }
    ),
    "left_running": _PROCESSES,
    "hints": _list(_TEXT),
}
_SOMETIMES: Final[dict[str, Schema]] = {
    "prompt": _TEXT,
    "until": _object(
        {},
        {
            "output": _TEXT,
            "line": _COUNT,
            "text": _TEXT,
            "port": _COUNT,
            "pid": _or_null(_COUNT),
            "http": _TEXT,
            "status": _COUNT,
            "stranger": _COUNT,
            "file": _TEXT,
            "idle": _NUMBER,
        },
    ),
    "ended": _PROCESSES,
    "refusal": _object(
        {"id": _TEXT, "rule": _or_null(_TEXT), "why": _TEXT, "instead": _or_null(_TEXT)}
    ),
}
_LISTED: Final[dict[str, Schema]] = {"command": _TEXT, "ports": _list(_COUNT)}
NACRE: Final = _object(_RUN, _SOMETIMES)
# About one run, or several: `list` and `wait` with `runs` have them in a list.
NACRE_JOB: Final = _object(
    {}, {**_RUN, **_SOMETIMES, "runs": _list(_object(_RUN, {**_SOMETIMES, **_LISTED}))}
)
