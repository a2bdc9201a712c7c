"""Whether a bundle's document holds together: what it refers to is in it, and its rows follow from its facts.

A schema sees one value at a time. Here bodies are held against their commitments, references and positions against
what is there, the state of each effect against the fold of its marks, and words that pages look up against their
tables. Every fault is a RefusedError.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

import orjson

from approvals import states, words
from approvals.requirement import Requirement
from ingest import strict
from inquiry.bundles.collecting import NAMES
from inquiry.bundles.shape import POSITIONS
from ledger import fold
from ledger.breaches import WORDS
from ledger.rows import AttemptRow, EffectRow
from ledger.states import RESOLUTIONS
from sessions.refused import RefusedError

_DEEPEST: Final = 2 * strict.MAX_DEPTH  # of a body: what an agent said, in what Gatebook says of it
_NOBODY: Final = UUID(int=0)


def check(document: dict[str, Any], enclosed: dict[str, int]) -> None:
    """Raise RefusedError for the first thing that cannot be. `enclosed` are sizes of artifacts' bytes, by hash."""
    _check_entries(document)
    positions = {one["position"] for one in document["entries"]}
    for part in (
        "tasks",
        "effects",
        "gates",
        "decisions",
        "handoffs",
        "checkpoints",
        "facts",
        "artifacts",
        "exemptions",
    ):
        for one in document[part]:
            _check_positions(part, one, positions)
            for inner in (*one.get("attempts", ()), *one.get("votes", ())):
                _check_positions(part, inner, positions)
    _check_positions("session", document["session"], positions)
    _check_references(document)
    for one in document["effects"]:
        _check_state(one)
    for one in document["gates"]:
        _check_gate(one)
    for one in document["agents"]:
        _check_plain(one, ("name",))
    _check_artifacts(document["artifacts"], enclosed)


def _check_entries(document: dict[str, Any]) -> None:
    before = 0
    for one in document["entries"]:
        where = f"Entry {one['position']}"
        if not before < one["position"] <= document["cut"]["position"]:
            raise RefusedError(f"{where} is out of order, or beyond the cut at {document['cut']['position']}.")
        before = one["position"]
        _check_plain(one, ("actor",))
        _check_body(where, one)
        if (
            one["lane"] == "system"
            and one["kind"] == "effect.resolved"
            and one["facts"].get("answer") not in RESOLUTIONS
        ):
            raise RefusedError(f"{where} resolves an effect without an answer that is known.")
        if (
            one["kind"] == "integrity.violation"
            and one["lane"] == "system"
            and one["facts"].get("violation") not in WORDS
        ):
            raise RefusedError(f"{where} names no violation that is known.")
        if one["kind"] == "control.fired" and not isinstance(one["facts"].get("control"), str):
            raise RefusedError(f"{where} names no control.")


def _check_body(where: str, one: dict[str, Any]) -> None:
    body, commitment = one["body"], one["commitment"]
    if body is None:
        if commitment is not None:
            raise RefusedError(f"{where} has lost its body, and nothing says that it was erased.")
        return
    if commitment is None:
        raise RefusedError(f"{where} has a body without a commitment to it.")
    if "erased" in body:
        return
    if "salt" in body:
        digest = hashlib.sha256(bytes.fromhex(body["salt"]) + body["text"].encode()).hexdigest()
        if digest != commitment:
            raise RefusedError(f"{where} has another body than the book of origin committed to.")
    elif one["kind"] not in NAMES:
        raise RefusedError(f"{where} says that names were replaced in its body, and its kind has none.")
    try:
        value = orjson.loads(body["text"])
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise RefusedError(f"{where} has a body that is no JSON object.")
    if body["text"].count("[") + body["text"].count("{") > _DEEPEST and strict.depth(value) > _DEEPEST:
        raise RefusedError(f"{where} has a body of more than {_DEEPEST} levels, which no Gatebook takes from anybody.")


def _check_positions(part: str, one: dict[str, Any], known: set[int]) -> None:
    for name in POSITIONS & one.keys():
        if one[name] is not None and one[name] not in known:
            raise RefusedError(f"A row of {part} names position {one[name]}, of which the bundle has no entry.")


def _check_references(document: dict[str, Any]) -> None:
    ids: dict[str, set[str]] = {}
    for part in ("tasks", "effects", "gates", "decisions", "handoffs", "checkpoints", "artifacts"):
        ids[part] = {one["id"] for one in document[part]}
        if len(ids[part]) < len(document[part]):
            raise RefusedError(f"An id stands twice among its {part}.")
    agents = {one["name"] for one in document["agents"]}
    for part, name, among in (
        *(("tasks", "parent", ids["tasks"]), ("items", "task", ids["tasks"]), ("effects", "task", ids["tasks"])),
        *(("gates", "effect", ids["effects"]), ("effects", "agent", agents), ("gates", "agent", agents)),
        *(("handoffs", "written_by", agents), ("handoffs", "accepted_by", agents)),
    ):
        for one in document[part]:
            if one[name] is not None and one[name] not in among and (part, name) != ("tasks", "parent"):
                raise RefusedError(f"A row of {part} names {name} {one[name]}, which the bundle does not tell of.")
    if document["session"]["agent"] not in agents:
        raise RefusedError("The session's agent is not among its agents.")


def _check_state(one: dict[str, Any]) -> None:
    """The fold says what follows from the marks; a row that says otherwise was not made by it."""
    names = EffectRow.__slots__
    told = {name: value for name, value in one.items() if name in names and name not in ("id", "version")}
    ids: dict[str, Any] = {"id": UUID(one["id"]), "project_id": _NOBODY, "session_id": _NOBODY, "agent_id": _NOBODY}
    effect = EffectRow(**told, **ids)
    attempts = {row["number"]: AttemptRow(project_id=_NOBODY, effect_id=_NOBODY, **row) for row in one["attempts"]}
    if len(attempts) < len(one["attempts"]):
        raise RefusedError(f"Effect e_{one['opened_position']} has two attempts of one number.")
    fold.settle(effect, attempts, 0)
    for name in ("state", "outcome", "attempt_count", "failure_reason"):
        if getattr(effect, name) != one[name]:
            raise RefusedError(
                f"Effect e_{one['opened_position']} claims {name} {one[name]!r}; its marks say"
                f" {getattr(effect, name)!r}."
            )


def _check_gate(one: dict[str, Any]) -> None:
    where = f"Gate g_{one['opened_position']}"
    try:
        words.needs(Requirement.of(one["requirement"]), [])
        known = Requirement.of(one["requirement"])
        lists = (known.teams, known.people, known.distinct_from)
        lawful = all(isinstance(name, str) for names in lists for name in names)
    except (TypeError, AttributeError, KeyError) as error:
        raise RefusedError(f"{where} asks for something that no rule can ask for.") from error
    tables = (
        *((one["status"], states.STATUSES), (one["reason"], states.REASONS), (one["risk"], states.RISKS)),
        *((one["step_up"], states.STEP_UPS), (one["reversibility"], words.UNDO)),
        *((vote["answer"], states.ANSWERS) for vote in one["votes"]),
        *((vote["step_up"], states.STEP_UPS) for vote in one["votes"]),
    )
    if not lawful or any(value not in table for value, table in tables):
        raise RefusedError(f"{where} has a status, an answer or a requirement that is unknown.")
    _check_plain(one, ("rule", "policy_set"))
    for vote in one["votes"]:
        _check_plain(vote, ("actor", "team"))


def _check_plain(one: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if one[name] is not None and not one[name].isprintable():
            raise RefusedError(f"{name} {one[name][:60]!r} holds characters that cannot be seen.")


def _check_artifacts(rows: list[dict[str, Any]], enclosed: dict[str, int]) -> None:
    wanted = {one["sha256"]: one["size"] for one in rows if one["enclosed"]}
    for sha256 in sorted(wanted.keys() ^ enclosed.keys()):
        told = "is missing" if sha256 in wanted else "belongs to no artifact of the session"
        raise RefusedError(f"artifacts/{sha256} {told}.")
    for sha256, size in wanted.items():
        if enclosed[sha256] != size:
            raise RefusedError(f"artifacts/{sha256} has {enclosed[sha256]} bytes, and its row says {size}.")
