"""JSON schemas for the structured data in each tool's replies; clients may rely on them.

The reply schemas allow properties that they do not list, because a later version of nacre may add
properties to a reply. A property that a reply schema lists is not removed in a later version of
nacre.
"""

from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {"type": "number"}
_CODE: Final[Schema] = {"type": "integer"}


def _object_schema(
    required: dict[str, Schema], optional: dict[str, Schema] | None = None
) -> Schema:
    schema: Schema = {"type": "object", "properties": {**required, **(optional or {})}}
    return schema | {"required": list(required)} if required else schema


def _list_schema(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _nullable(schema: Schema) -> Schema:
    return schema | {"type": [schema["type"], "null"]}


HARNESS_REPLY: Final = _object_schema(
    {}, {"stdout": _TEXT, "stderr": _TEXT, "exitCode": _CODE, "signal": _TEXT, "error": _TEXT}
)

PHOENIX_REPLY: Final = _object_schema(
    {},
    {
        "run": _TEXT,
        "seconds": _NUMBER,
        "exit_code": _CODE,
        "signal": _TEXT,
        "timed_out": _FLAG,
        "cancelled": _FLAG,
        "output": _object_schema({"bytes": _COUNT, "lines": _COUNT, "truncated": _FLAG}),
        "left_running": _list_schema(_object_schema({"pid": _COUNT, "command": _TEXT})),
        "pid": _COUNT,
        "output_file": _TEXT,
        "rule": _TEXT,
        "instead": _TEXT,
    },
)

_TRUNCATION: Final = _object_schema(
    {
        "direction": {"type": "string", "enum": ["head", "tail"]},
        "truncatedBy": _TEXT,
        "totalLines": _COUNT,
        "totalBytes": _COUNT,
        "outputLines": _COUNT,
        "outputBytes": _COUNT,
        "shownRange": _object_schema({"start": _COUNT, "end": _COUNT}),
    },
    {"artifactId": _TEXT},
)
PI_REPLY: Final = _object_schema(
    {},
    {
        "timeoutSeconds": _NUMBER,
        "requestedTimeoutSeconds": _NUMBER,
        "wallTimeMs": _COUNT,
        "exitCode": _CODE,
        "signal": _TEXT,
        "timedOut": _FLAG,
        "aborted": _FLAG,
        "async": _object_schema({"state": _TEXT, "jobId": _TEXT, "type": _TEXT}),
        "suggestion": _object_schema({"tool": _TEXT, "arguments": {"type": "object"}}),
        "meta": _object_schema({"truncation": _TRUNCATION}),
    },
)
PI_JOB_REPLY: Final = _object_schema(
    {},
    {
        "jobs": _list_schema(
            _object_schema(
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
        "cancelled": _list_schema(_object_schema({"id": _TEXT, "status": _TEXT})),
        "unknown": _list_schema(_TEXT),
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
_PROCESSES: Final = _list_schema(
    _object_schema({"pid": _COUNT, "command": _TEXT, "ports": _list_schema(_COUNT)})
)
_RUN: Final[dict[str, Schema]] = {
    "state": {"type": "string", "enum": list(_STATES)},
    "exit_code": _nullable(_CODE),
    "signal": _nullable(_TEXT),
    "seconds": _NUMBER,
    "run": _nullable(_TEXT),
    "cwd": _nullable(_TEXT),
    "output": _object_schema(
        {
            "bytes": _COUNT,
            "lines": _COUNT,
            "shown": _list_schema(_list_schema(_COUNT)),
            "cursor": _COUNT,
            "cut": _FLAG,
        }
    ),
    "left_running": _PROCESSES,
    "hints": _list_schema(_TEXT),
}
_SOMETIMES: Final[dict[str, Schema]] = {
    "prompt": _TEXT,
    "until": _object_schema(
        {},
        {
            "output": _TEXT,
            "line": _COUNT,
            "text": _TEXT,
            "port": _COUNT,
            "pid": _nullable(_COUNT),
            "http": _TEXT,
            "status": _COUNT,
            "foreign_pid": _COUNT,
            "file": _TEXT,
            "idle": _NUMBER,
            "all": _list_schema({"type": "object"}),
        },
    ),
    "activity": _object_schema(
        {
            "pid": _COUNT,
            "processes": _COUNT,
            "cpu_seconds": _NUMBER,
            "idle_seconds": _nullable(_NUMBER),
            "ports": _list_schema(_COUNT),
            "stopped": _FLAG,
        }
    ),
    "queued": _object_schema({"behind": _nullable(_TEXT)}),
    "failed_stages": _list_schema(
        _object_schema({"stage": _COUNT, "program": _TEXT, "status": _COUNT})
    ),
    "ended": _PROCESSES,
    "refusal": _object_schema(
        {"id": _TEXT, "rule": _nullable(_TEXT), "why": _TEXT, "instead": _nullable(_TEXT)}
    ),
}
_LISTED: Final[dict[str, Schema]] = {
    "command": _TEXT,
    "ports": _list_schema(_COUNT),
    "timeout_in": _NUMBER,
}
_SESSION: Final = _object_schema({"name": _TEXT, "cwd": _TEXT, "idle_seconds": _NUMBER})
NACRE_REPLY: Final = _object_schema(_RUN, _SOMETIMES)
# A reply of the tool `job` describes one run, or has a list `runs` if the call listed, awaited or
# signalled several runs.
NACRE_JOB_REPLY: Final = _object_schema(
    {},
    {
        **_RUN,
        **_SOMETIMES,
        "runs": _list_schema(_object_schema(_RUN, {**_SOMETIMES, **_LISTED})),
        "sessions": _list_schema(_SESSION),
    },
)
