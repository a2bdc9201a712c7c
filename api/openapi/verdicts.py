"""Verdicts and probes in the OpenAPI document."""

from typing import Any, Final

from api.openapi.operation import Endpoint, build_object_schema
from api.schemas import core
from ledger.verdicts.table import VERDICT_ANSWERS as SAID

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_BOOLEAN: Final = {"type": "boolean"}

ENDPOINTS: Final = (
    Endpoint(
        "get",
        "/effects/{effect}/verdict",
        "getVerdict",
        "Return what you may do with an effect now.",
        {200: "Verdict"},
        query=("process",),
    ),
    Endpoint(
        "post",
        "/effects/{effect}/probe",
        "probeEffect",
        "Report the result of probing the remote for an attempt.",
        {200: "Verdict"},
        core.ProbeEffect,
    ),
)

ANSWERS: Final[dict[str, Any]] = {
    "Verdict": build_object_schema(
        {
            "effect": {"$ref": "#/components/schemas/Effect"},
            "verdict": {"enum": list(SAID)},
            "row": _TEXT,
            "reason": _TEXT,
            "sentence": _TEXT,
            "safe": _BOOLEAN,
            "needs_permission": _BOOLEAN,
            "attempt": _NUMBER,
            "as_of_us": _NUMBER,
            "table_version": _NUMBER,
            "inputs": {"type": "object"},
        },
        until_us=_NUMBER,
        remote_key=_TEXT,
        in_doubt={
            "type": "array",
            "items": build_object_schema({"attempt": _NUMBER, "remote_key": _TEXT}),
        },
        compensation={"type": "string", "format": "uuid"},
    ),
}
