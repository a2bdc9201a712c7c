"""Semantic validation of a bundle, beyond its JSON Schema.

Checks bodies against their commitments, references and positions for existence, the state of each
effect against the fold of its marks, and values that pages look up against their tables. Every
fault is a ChangeRefused.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

import orjson

from api.strictjson import parser
from approvals import labels
from approvals.gates import statuses
from approvals.policies.engine import Requirement
from db.errors import ChangeRefused
from investigation.bundles.collect import NAME_PATHS
from investigation.bundles.schema import POSITION_COLUMNS
from ledger.fold import effect_state
from ledger.states import RESOLUTIONS
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.violations import VIOLATION_LABELS

# A body is an agent's payload inside a Gatebook entry.
_MAX_BODY_DEPTH: Final = 2 * parser.MAX_DEPTH
_NIL_ID: Final = UUID(int=0)


_PARTS_WITH_ID: Final = (
    "tasks",
    "effects",
    "gates",
    "decisions",
    "handoffs",
    "checkpoints",
    "artifacts",
)


def validate_document(document: dict[str, Any], enclosed: dict[str, int]) -> None:
    """Raise ChangeRefused for the first fault. `enclosed`: artifact hash to size."""
    _check_entries(document)
    positions = {row["position"] for row in document["entries"]}
    for part in (*_PARTS_WITH_ID, "facts", "exemptions"):
        for row in document[part]:
            _check_positions(part, row, positions)
            for inner in (*row.get("attempts", ()), *row.get("votes", ())):
                _check_positions(part, inner, positions)
    _check_positions("session", document["session"], positions)
    _check_references(document)
    for row in document["effects"]:
        _check_state(row)
    for row in document["gates"]:
        _check_gate(row)
    for row in document["agents"]:
        _check_printable(row, ("name",))
    _check_artifacts(document["artifacts"], enclosed)


def _check_entries(document: dict[str, Any]) -> None:
    previous = 0
    for entry in document["entries"]:
        where = f"Entry {entry['position']}"
        if not previous < entry["position"] <= document["cut"]["position"]:
            raise ChangeRefused(
                f"{where} is out of order, or after the last position"
                f" {document['cut']['position']}."
            )
        previous = entry["position"]
        _check_printable(entry, ("actor",))
        _check_body(where, entry)
        if (
            entry["lane"] == "system"
            and entry["kind"] == "effect.resolved"
            and entry["facts"].get("answer") not in RESOLUTIONS
        ):
            raise ChangeRefused(f"{where} resolves an effect with an unknown answer.")
        if (
            entry["kind"] == "integrity.violation"
            and entry["lane"] == "system"
            and entry["facts"].get("violation") not in VIOLATION_LABELS
        ):
            raise ChangeRefused(f"{where} names an unknown violation.")
        if entry["kind"] == "control.fired" and not isinstance(entry["facts"].get("control"), str):
            raise ChangeRefused(f"{where} names no control.")


def _check_body(where: str, entry: dict[str, Any]) -> None:
    body, commitment = entry["body"], entry["commitment"]
    if body is None:
        if commitment is not None:
            raise ChangeRefused(f"{where} has no body, but is not marked as erased.")
        return
    if commitment is None:
        raise ChangeRefused(f"{where} has a body without a commitment.")
    if "erased" in body:
        return
    if "salt" in body:
        digest = hashlib.sha256(bytes.fromhex(body["salt"]) + body["text"].encode()).hexdigest()
        if digest != commitment:
            raise ChangeRefused(f"{where} has a body that differs from its commitment.")
    elif entry["kind"] not in NAME_PATHS:
        raise ChangeRefused(
            f"{where} has a body with replaced names, but its kind contains no names."
        )
    try:
        value = orjson.loads(body["text"])
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ChangeRefused(f"{where} has a body that is not a JSON object.")
    if (
        body["text"].count("[") + body["text"].count("{") > _MAX_BODY_DEPTH
        and parser.measure_depth(value) > _MAX_BODY_DEPTH
    ):
        raise ChangeRefused(f"{where} has a body of more than {_MAX_BODY_DEPTH} levels.")


def _check_positions(part: str, row: dict[str, Any], positions: set[int]) -> None:
    for name in POSITION_COLUMNS & row.keys():
        if row[name] is not None and row[name] not in positions:
            raise ChangeRefused(
                f"A row of {part} names position {row[name]}, but the bundle has no such entry."
            )


def _check_references(document: dict[str, Any]) -> None:
    ids: dict[str, set[str]] = {}
    for part in _PARTS_WITH_ID:
        ids[part] = {row["id"] for row in document[part]}
        if len(ids[part]) < len(document[part]):
            raise ChangeRefused(f"An id is repeated in {part}.")
    agents = {row["name"] for row in document["agents"]}
    for part, name, among in (
        ("tasks", "parent", ids["tasks"]),
        ("items", "task", ids["tasks"]),
        ("effects", "task", ids["tasks"]),
        ("gates", "effect", ids["effects"]),
        ("effects", "agent", agents),
        ("gates", "agent", agents),
        ("handoffs", "written_by", agents),
        ("handoffs", "accepted_by", agents),
    ):
        for row in document[part]:
            if (
                row[name] is not None
                and row[name] not in among
                and (part, name) != ("tasks", "parent")
            ):
                raise ChangeRefused(
                    f"A row of {part} names {name} {row[name]}, which is not in the bundle."
                )
    if document["session"]["agent"] not in agents:
        raise ChangeRefused("The session's agent is not among the bundle's agents.")


def _check_state(row_data: dict[str, Any]) -> None:
    """Compare the state of an effect with the fold of its marks."""
    names = EffectRow.__slots__
    values = {
        name: value
        for name, value in row_data.items()
        if name in names and name not in ("id", "version")
    }
    ids: dict[str, Any] = {
        "id": UUID(row_data["id"]),
        "project_id": _NIL_ID,
        "session_id": _NIL_ID,
        "agent_id": _NIL_ID,
    }
    effect = EffectRow(**values, **ids)
    attempts = {
        row["number"]: AttemptRow(project_id=_NIL_ID, effect_id=_NIL_ID, **row)
        for row in row_data["attempts"]
    }
    if len(attempts) < len(row_data["attempts"]):
        raise ChangeRefused(
            f"Effect e_{row_data['opened_position']} has two attempts with the same number."
        )
    effect_state.derive_state(effect, attempts, 0)
    for name in ("state", "outcome", "attempt_count", "failure_reason"):
        if getattr(effect, name) != row_data[name]:
            raise ChangeRefused(
                f"Effect e_{row_data['opened_position']} claims {name} {row_data[name]!r}; its"
                " marks say"
                f" {getattr(effect, name)!r}."
            )


def _check_gate(gate: dict[str, Any]) -> None:
    where = f"Gate g_{gate['opened_position']}"
    try:
        labels.describe_needs(Requirement.of(gate["requirement"]), [])
        requirement = Requirement.of(gate["requirement"])
        lists = (requirement.teams, requirement.people, requirement.distinct_from)
        is_valid = all(isinstance(name, str) for names in lists for name in names)
    except (TypeError, AttributeError, KeyError) as error:
        raise ChangeRefused(f"{where} has an invalid requirement.") from error
    tables = (
        (gate["status"], statuses.GATE_STATUSES),
        (gate["reason"], statuses.GATE_END_REASONS),
        (gate["risk"], statuses.RISKS),
        (gate["step_up"], statuses.STEP_UPS),
        (gate["reversibility"], labels.UNDO_LABELS),
        *((vote["answer"], statuses.VOTE_ANSWERS) for vote in gate["votes"]),
        *((vote["step_up"], statuses.STEP_UPS) for vote in gate["votes"]),
    )
    if not is_valid or any(value not in table for value, table in tables):
        raise ChangeRefused(f"{where} has an unknown status, answer or requirement.")
    _check_printable(gate, ("rule", "policy_set"))
    for vote in gate["votes"]:
        _check_printable(vote, ("actor", "team"))


def _check_printable(row: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if row[name] is not None and not row[name].isprintable():
            raise ChangeRefused(f"{name} {row[name][:60]!r} contains invisible characters.")


def _check_artifacts(rows: list[dict[str, Any]], enclosed: dict[str, int]) -> None:
    sizes = {row["sha256"]: row["size"] for row in rows if row["enclosed"]}
    for sha256 in sorted(sizes.keys() ^ enclosed.keys()):
        fault = "is missing" if sha256 in sizes else "belongs to no artifact of the session"
        raise ChangeRefused(f"artifacts/{sha256} {fault}.")
    for sha256, size in sizes.items():
        if enclosed[sha256] != size:
            raise ChangeRefused(
                f"artifacts/{sha256} has {enclosed[sha256]} bytes, and its row says {size}."
            )
