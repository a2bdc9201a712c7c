"""Checks of exemptions, stops, declared tools and rules: what decides about later effects."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet

from approvals import exemptions
from approvals.exemptions import EXEMPTION_SCOPES, digest_scope
from approvals.gates.statuses import STEP_UPS
from approvals.models import Activation, Exemption, ExemptionVote, PolicySet
from approvals.policies import policies, policies_yaml
from approvals.voting.quorum import GRANTING_ROLES
from db.ids import new_uuid7
from db.yaml_reader import DocumentError
from ledger import stops
from ledger.models import Stop, Tool
from ledger.tools import registry
from ledger.tools.registry import tool_name_digest
from rebuild.past_voters import PastVoters, load_past_voters
from rebuild.project_journal import (
    EARLIER_VERSION,
    ERASED,
    ProjectEntry,
    is_archive,
    load_project_entries,
)
from rebuild.project_names import load_project_names, read_user
from rebuild.registry import Fault, FoldedRow, RebuildBatch, RowCheck, register_row_check

_GRANTS: Final = ("exemption.requested", "exemption.confirmed", "exemption.granted")
_EXEMPTIONS: Final = (*_GRANTS, "exemption.used", "exemption.revoked", "exemption.expired")
_STOPS: Final = ("stop.set", "stop.lifted")
_NOT_A_REFERENCE: Final = "a number of the table, to which nothing refers"


def _fold_exemptions(batch: RebuildBatch) -> Iterator[FoldedRow]:
    by_exemption: dict[UUID, list[ProjectEntry]] = {}
    for entry in load_project_entries(batch, _EXEMPTIONS):
        if entry.subject is not None:
            by_exemption.setdefault(entry.subject, []).append(entry)
    stored = {
        row["id"]: row
        for row in Exemption.objects.filter(project=batch.project).values("id", *EXEMPTION_SCOPES)
    }
    for identity, entries in by_exemption.items():
        if entries[0].kind in _GRANTS:
            yield _fold_exemption(batch, entries, stored.get(identity, {}))


def _fold_exemption(
    batch: RebuildBatch, entries: list[ProjectEntry], stored: Mapping[str, Any]
) -> FoldedRow:
    """Return an exemption: its terms from the first entry, its course from the others."""
    request, unknown = entries[0], dict[str, str]()
    values: dict[str, Any] = {
        "id": request.subject,
        "project_id": batch.project,
        "session_id": request.session,
        "granted_by_id": read_user(batch, request.actor, unknown, "granted_by_id"),
        "opened_position": request.position,
        "granted_at_us": request.received_us,
        "minimum": request.facts.get("minimum", 1),
        "ends_at_us": request.facts["ends_at_us"],
        "in_force_at_us": None,
        "revoked_at_us": None,
        "expired_position": None,
        "uses": 0,
        "used_at_us": None,
    }
    faults: dict[str, Fault] = {}
    if request.body is not None:
        values |= {name: request.body[name] for name in EXEMPTION_SCOPES}
    elif not stored or "scope" not in request.facts:
        unknown |= dict.fromkeys(EXEMPTION_SCOPES, ERASED)
    elif request.facts["scope"] != digest_scope(stored):
        faults["scope"] = "altered"
    for entry in entries:
        match entry.kind.removeprefix("exemption."):
            case "granted":
                values["in_force_at_us"] = entry.received_us
            case "revoked":
                values["revoked_at_us"] = entry.received_us
            case "expired":
                values["expired_position"] = entry.position
            case "used":
                values["uses"] += 1
                values["used_at_us"] = entry.received_us
    if not _has_its_grantors(entries, values["minimum"], load_past_voters(batch)):
        faults["in_force_at_us"] = "unfounded"
    return FoldedRow((request.subject,), values, entries[-1].position, unknown, faults)


def _has_its_grantors(entries: list[ProjectEntry], minimum: int, people: PastVoters) -> bool:
    """Return False for an exemption in force without the people that its first entry asks for."""
    granted = next((entry for entry in entries if entry.kind == "exemption.granted"), None)
    if granted is None:
        return True
    grantors = {
        entry.actor
        for entry in entries
        if entry.kind in _GRANTS
        and entry.position <= granted.position
        and all(people.had_role(entry.actor, GRANTING_ROLES, moment) for moment in (entry, granted))
    }
    return len(grantors) >= minimum


def _fold_exemption_votes(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for entry in load_project_entries(batch, _EXEMPTIONS):
        if entry.kind not in _GRANTS:
            continue
        unknown: dict[str, str] = {}
        if "password_at_us" not in entry.facts:
            unknown["password_at_us"] = EARLIER_VERSION
        values = {
            "exemption_id": entry.subject,
            "user_id": read_user(batch, entry.actor, unknown, "user_id"),
            "actor": entry.actor,
            "step_up": STEP_UPS[-1],
            "password_at_us": entry.facts.get("password_at_us"),
            "position": entry.position,
            "voted_at_us": entry.received_us,
        }
        row = FoldedRow((entry.subject, entry.actor), values, entry.position, unknown)
        if not load_past_voters(batch).had_role(entry.actor, GRANTING_ROLES, entry):
            row.faults["actor"] = "unfounded"
        yield row


def _fold_stops(batch: RebuildBatch) -> Iterator[FoldedRow]:
    entries = load_project_entries(batch, _STOPS)
    lifted = {entry.subject: entry for entry in entries if entry.kind == "stop.lifted"}
    stored = dict(Stop.objects.filter(project=batch.project).values_list("id", "subject"))
    for entry in entries:
        if entry.kind != "stop.set" or entry.subject is None:
            continue
        unknown, faults = dict[str, str](), dict[str, Fault]()
        subject, end = entry.facts["thing"], lifted.get(entry.subject)
        if entry.facts["scope"] == "tool":
            subject = entry.read("subject", unknown)
            name, digest = stored.get(entry.subject), entry.facts.get("tool")
            if subject is None and name is not None and digest is not None:
                subject = name
                unknown.clear()
                if digest != tool_name_digest(name):
                    faults["subject"] = "altered"
        values = {
            "id": entry.subject,
            "project_id": batch.project,
            "scope": entry.facts["scope"],
            "subject": subject,
            "set_by_id": read_user(batch, entry.actor, unknown, "set_by_id"),
            "set_at_us": entry.received_us,
            "opened_position": entry.position,
            "lifted_at_us": None if end is None else end.received_us,
            "lifted_by_id": None
            if end is None
            else read_user(batch, end.actor, unknown, "lifted_by_id"),
        }
        yield FoldedRow((entry.subject,), values, (end or entry).position, unknown, faults)


def _fold_tools(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield the tools of the newest load, as its body declares them.

    Where the body is erased, the digests of its facts tell which stored tools are as declared.
    """
    loads = load_project_entries(batch, ("admin.tools_loaded",))
    if not loads:
        return
    load = loads[-1]
    same: dict[str, Any] = {"project_id": batch.project, "declared_position": load.position}
    if load.body is not None and "tools" in load.body:
        for tool in load.body["tools"]:
            unknown = {}
            values = {**tool, **same}
            if tool["description"]:  # an erasure may have removed words from the row
                unknown["description"] = "an erasure may remove its words"
            yield FoldedRow((tool["name"],), values, load.position, unknown)
        return
    declared = dict(load.facts.get("declared", {}))
    for row in _select_tools(batch).values():
        digest = declared.pop(tool_name_digest(row["name"]), None)
        if digest is not None:
            tool = FoldedRow((row["name"],), {"name": row["name"], **same}, load.position)
            if digest != registry.digest_declaration(row):
                tool.faults["declaration"] = "altered"
            yield tool
    for name_digest in declared:
        yield FoldedRow((name_digest,), same, load.position, is_lost=True)


def _fold_policy_sets(batch: RebuildBatch) -> Iterator[FoldedRow]:
    texts = dict(_select_policy_sets(batch).values_list("id", "text"))
    for entry in load_project_entries(batch, ("policy.loaded",)):
        if entry.subject is not None:
            yield _fold_policy_set(batch, entry, texts.get(entry.subject))


def _fold_policy_set(
    batch: RebuildBatch, entry: ProjectEntry, stored_text: str | None
) -> FoldedRow:
    """Return loaded rules. Where their text is erased, its digest knows the stored one."""
    row = FoldedRow((entry.subject,), {}, entry.position)
    text, name = entry.read("text", row.unknown), entry.read("name", row.unknown)
    if text is None and stored_text is not None:
        del row.unknown["text"]
        text = stored_text
        if policies.digest_policy_text(stored_text) != entry.facts["sha256"]:
            row.faults["text"] = "altered"
            row.unknown["rules"] = "its text is not the one whose digest the entry has"
    row.is_lost = text is None
    row.values |= {
        "id": entry.subject,
        "project_id": batch.project,
        "name": name,
        "version": entry.facts["version"],
        "text": text,
        "sha256": entry.facts["sha256"],
        "rules": None,
        "loaded_by": entry.actor,
    }
    if text is None or row.faults:
        row.unknown.setdefault("rules", ERASED)
        return row
    try:
        row.values["rules"] = orjson.loads(orjson.dumps(policies_yaml.parse_policies(text)))
    except DocumentError:
        row.unknown["rules"] = "this version reads its text differently"
        return row
    if name is None and row.unknown.pop("name", ""):
        row.values["name"] = row.values["rules"]["name"]
    return row


def _fold_activations(batch: RebuildBatch) -> Iterator[FoldedRow]:
    entries = load_project_entries(batch, ("policy.activated",))
    names = load_project_names(batch)
    for entry in entries:
        values = {
            "project_id": batch.project,
            "policy_set_id": entry.subject,
            "mode": entry.facts["mode"],
            "user_id": names.find_person(entry.actor),
            "actor": entry.actor,
            "is_current": entry is entries[-1],
            "position": entry.position,
        }
        yield FoldedRow((entry.position,), values, entry.position)


def _select_exemptions(batch: RebuildBatch) -> "QuerySet[Any]":
    return Exemption.objects.filter(project=batch.project)


def _select_exemption_votes(batch: RebuildBatch) -> "QuerySet[Any]":
    return ExemptionVote.objects.filter(exemption__project=batch.project)


def _select_stops(batch: RebuildBatch) -> "QuerySet[Any]":
    return Stop.objects.filter(project=batch.project)


def _select_tools(batch: RebuildBatch) -> "QuerySet[Any]":
    if is_archive(batch):
        return Tool.objects.none()
    return Tool.objects.filter(project=batch.project)


def _select_policy_sets(batch: RebuildBatch) -> "QuerySet[Any]":
    return PolicySet.objects.filter(project=batch.project)


def _select_activations(batch: RebuildBatch) -> "QuerySet[Any]":
    return Activation.objects.filter(project=batch.project)


def _give_id(_row: FoldedRow) -> dict[str, Any]:
    return {"id": new_uuid7()}


def register_decision_checks() -> None:
    """Register the checks of rules, exemptions, stops and declared tools."""
    checks = (
        RowCheck(
            PolicySet,
            ("id",),
            "project",
            _fold_policy_sets,
            _select_policy_sets,
            policies.restore_policy_sets,
            {"loaded_at_us": "the clock of the row, a moment before that of its entry"},
            lambda row: {"loaded_at_us": 0},
        ),
        RowCheck(
            Activation,
            ("position",),
            "project",
            _fold_activations,
            _select_activations,
            policies.restore_activations,
            {"id": _NOT_A_REFERENCE, "activated_at_us": "the clock of the row"},
            lambda row: {"activated_at_us": 0},
        ),
        RowCheck(
            Exemption,
            ("id",),
            "project",
            _fold_exemptions,
            _select_exemptions,
            exemptions.restore_exemptions,
        ),
        RowCheck(
            ExemptionVote,
            ("exemption_id", "actor"),
            "project",
            _fold_exemption_votes,
            _select_exemption_votes,
            exemptions.restore_exemption_votes,
            {"id": _NOT_A_REFERENCE},
            _give_id,
        ),
        RowCheck(Stop, ("id",), "project", _fold_stops, _select_stops, stops.restore_stops),
        RowCheck(
            Tool,
            ("name",),
            "project",
            _fold_tools,
            _select_tools,
            registry.restore_tools,
            {"id": _NOT_A_REFERENCE, "declared_at": "the clock of the row"},
            _give_id,
        ),
    )
    for check in checks:
        register_row_check(check.table, check)
