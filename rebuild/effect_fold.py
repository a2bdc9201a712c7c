"""Fold a session's effects from its entries alone, with the fold that wrote them.

`investigation/history/rebuild_effects.py` folds what was so at a past moment, and reads from the
rows what never changes. Here every such value comes from the entries and their bodies. A policy's
result on a reported plan is in no entry: it is taken from the row, and named as not compared.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from accounts.git_refs import parse_moved_refs
from api.redaction.redact import REDACTION_MARK
from db.ids import derive_uuid
from investigation.history.past_effects import ToolDeadlines
from investigation.history.past_entries import PastEntry
from investigation.history.rebuild_effects import (
    TEXT_PLACEHOLDER,
    EffectRebuilder,
    RebuiltEffect,
)
from journal.order_keys import is_command_mark
from ledger.fold import effect_state
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.store.writer import REPLANNED
from rebuild.project_names import DEFAULT_PATTERNS, ProjectNames, classify_refs_again
from rebuild.session_journal import SessionJournal
from sessions.tasks import derive_task_id

NAMED: Final = "effect.named"
POLICY_COLUMNS: Final = (
    "policy_outcome",
    "policy_rule",
    "policy_tool_class",
    "policy_parts_digest",
    "policy_enforced",
)
TEXT_COLUMNS: Final = (
    *("tool", "call_id", "turn", "claimed_class", "ref", "moved_refs", "environment", "resource"),
    *("task_id", "repository_id", "parent_effect_id", "compensates_id", "ref_class"),
    "ref_patterns_version",
)
REPORTED_POLICY: Final = "no entry has a policy's result on a reported plan"
REPORTED_REDACTIONS: Final = "no entry has the number of redactions of a reported plan"
_EARLIER_VERSION: Final = "the entry is of a version that did not record it"
_OPENING: Final = (*effect_state.REPORTABLE_KINDS, NAMED)
_KEY_OF_ROW: Final = ("18",)  # replays by these rows of the verdict table have a new remote key
_UNPERMITTED: Final = "executed_without_permission"


class StoredEffect(NamedTuple):
    """What is read of a stored effect: a key that proves itself, and a policy's result."""

    id: UUID
    effect_key: str
    policy_outcome: str
    policy_rule: str
    policy_tool_class: str
    policy_parts_digest: str
    policy_enforced: bool
    compensates_id: UUID | None  # serves only where the body of the plan was erased


@dataclass(slots=True)
class FoldedEffect:
    """An effect from the journal with its attempts, and what could not be recomputed.

    `position` is that of the last entry about the effect.
    """

    row: EffectRow
    attempts: dict[int, AttemptRow]
    position: int
    unknown: dict[str, str] = field(default_factory=dict)
    unknown_of_attempts: dict[int, dict[str, str]] = field(default_factory=dict)


def fold_effects(
    journal: SessionJournal,
    stored: Mapping[UUID, StoredEffect],
    names: ProjectNames,
    deadlines: ToolDeadlines,
    branches: "BranchHistory",
) -> list[FoldedEffect]:
    """Return the effects of a session. `stored` serves only for policy results of reports."""
    opened = _open_effects(journal)
    rows = {
        effect: _start_row(journal, entry, stored.get(effect)) for effect, entry in opened.items()
    }
    folding = JournalRebuilder(journal, rows, names, branches)
    folding.tell(entry for entry in journal.entries if entry.effect in rows)
    last = {entry.effect: entry.position for entry in journal.entries}
    return [
        folding.finish(effect, folded, last[effect], deadlines, stored.get(effect))
        for effect, folded in folding.folded.items()
    ]


@dataclass(slots=True)
class BranchHistory:
    """The branch of a session: which starts described it, in the order of the journal."""

    starts: list[tuple[int, int, str | None]] = field(default_factory=list)

    def find_branch(self, entry: PastEntry) -> str | None:
        """Return the branch when a plan arrived; None if it cannot be known.

        The facts of one batch about effects are folded before those about its session.
        """
        earlier = [
            branch
            for position, received_us, branch in self.starts
            if position < entry.position
            and (received_us != entry.received_us or entry.lane == "command")
        ]
        if not earlier:
            return ""
        return earlier[0] if len(set(earlier)) == 1 else None


def load_branch_history(journal: SessionJournal) -> BranchHistory:
    """Return the branches that the starts of a session name."""
    return BranchHistory(
        [
            (
                entry.position,
                entry.received_us,
                journal.read_body(entry.position).get("branch") or ""
                if journal.has_body(entry.position)
                else None,
            )
            for entry in journal.list_entries("session.started")
        ]
    )


def _open_effects(journal: SessionJournal) -> dict[UUID, PastEntry]:
    """Return the entry that opened each effect."""
    opened: dict[UUID, PastEntry] = {}
    for entry in journal.entries:
        if entry.effect is None or entry.effect in opened or entry.kind not in _OPENING:
            continue
        if entry.is_ours == (entry.kind == NAMED):
            opened[entry.effect] = entry
    return opened


def _start_row(journal: SessionJournal, entry: PastEntry, stored: StoredEffect | None) -> EffectRow:
    """Return what never changes of an effect, as its first entry gives it."""
    row = EffectRow(  # a placeholder gets the agent of the plan that names it
        id=entry.effect or UUID(int=0),
        project_id=journal.project,
        session_id=journal.session,
        agent_id=entry.agent or UUID(int=0),
        effect_key="",
        opened_position=entry.position,
        received_us=entry.received_us,
        changed_us=entry.received_us,
    )
    for name in (*POLICY_COLUMNS, "compensates_id") if stored is not None else ():
        setattr(row, name, getattr(stored, name))
    return row


class JournalRebuilder(EffectRebuilder):
    """Folds the entries of one session; what a plan set comes from its own entry."""

    def __init__(
        self,
        journal: SessionJournal,
        rows: dict[UUID, EffectRow],
        names: ProjectNames,
        branches: BranchHistory,
    ) -> None:
        replaced: dict[UUID, list[dict[str, Any]]] = {}
        for entry in journal.list_entries(REPLANNED):
            if entry.effect is not None and entry.is_ours:
                replaced.setdefault(entry.effect, []).append(entry.facts)
        super().__init__(rows, {}, replaced)
        self._journal = journal
        self._names = names
        self._branches = branches
        self._keys: dict[UUID, str] = {}
        self._tasks = {
            entry.subject for entry in journal.list_entries("task.", "item.") if entry.subject
        }
        self._unknown: dict[int, dict[str, str]] = {}  # by position of the plan
        self._policy: dict[UUID, str] = {}  # why the policy's result is unknown; empty: it is not
        self._violations: dict[UUID, set[str]] = {}
        for entry in journal.entries:
            self._read_names(entry)

    def _read_names(self, entry: PastEntry) -> None:
        """Learn the keys of effects, and the agents of those that plans name."""
        if entry.effect is None:
            return
        if entry.kind == "integrity.violation" and entry.is_ours:
            self._violations.setdefault(entry.effect, set()).add(entry.facts.get("violation", ""))
        if entry.kind not in effect_state.REPORTABLE_KINDS or entry.is_ours:
            return
        body = self._journal.read_body(entry.position)
        key = body.get("effect_key")
        if key is None and entry.kind == "effect.planned" and body.get("call_id"):
            digest = entry.facts.get("intent", "")
            key = f"{body['call_id']}:{digest[3:19]}:{body.get('ordinal', 0)}"
        if isinstance(key, str):
            self._learn_key(entry.effect, key)
        if entry.kind == "effect.planned" and entry.lane != "command" and body.get("compensates"):
            target = derive_uuid(self._journal.session, body["compensates"])
            self._learn_key(target, body["compensates"])
            row = self._rows.get(target)
            if row is not None and row.agent_id == UUID(int=0) and entry.agent is not None:
                row.agent_id = entry.agent

    def _learn_key(self, effect: UUID, key: str) -> None:
        if effect not in self._keys and derive_uuid(self._journal.session, key) == effect:
            self._keys[effect] = key

    def _values(self, row: EffectRow, entry: PastEntry) -> dict[str, Any]:
        if entry.kind == "effect.planned":
            return self._read_plan(row, entry)
        body = self._journal.read_body(entry.position)
        has_body = self._journal.has_body(entry.position)
        place = f"{TEXT_PLACEHOLDER}{entry.position}"
        if entry.kind == "effect.dispatched":
            values: dict[str, Any] = {"process": body.get("process") or "" if has_body else place}
            replaced = entry.facts.get("replaces")
            if replaced:
                before = self.folded[row.id].attempts.get(replaced)
                is_new = entry.facts["row"] in _KEY_OF_ROW or before is None
                values |= {
                    "replaces": replaced,
                    "verdict_row": entry.facts["row"],
                    "remote_key": effect_state.make_remote_key(row.id, entry.attempt or 1)
                    if is_new or before is None
                    else before.remote_key,
                }
            return values
        names = ("outcome", "reason", "result")
        values = {name: entry.facts[name] for name in names if name in entry.facts}
        return values | {
            "external_reference": body.get("external_reference") or "" if has_body else place
        }

    def _fact(self, folded: RebuiltEffect, entry: PastEntry) -> Any:
        fact = super()._fact(folded, entry)
        if fact is not None and entry.kind == effect_state.RESOLVED:
            has_body = self._journal.has_body(entry.position)
            body = self._journal.read_body(entry.position)
            if has_body:
                fact.values["external_reference"] = body.get("reference") or ""
        return fact

    def _permission(self, folded: RebuiltEffect, entry: PastEntry) -> None:
        super()._permission(folded, entry)
        is_change = entry.is_ours and entry.kind in ("effect.granted", "effect.withheld")
        if is_change and entry.subject is None:
            self._policy[folded.row.id] = ""

    def _read_plan(self, row: EffectRow, entry: PastEntry) -> dict[str, Any]:
        """Return all columns of a plan; those that are unknown are kept by its position."""
        unknown = self._unknown.setdefault(entry.position, {})
        values = {
            "intent_digest": entry.facts["intent"],
            **super().said_of_plan(row.id, entry.position),
        }
        if self._journal.has_body(entry.position):
            values |= self._read_plan_body(entry, self._journal.read_body(entry.position), unknown)
        else:
            reason = self._journal.explain_missing_body(entry.position)
            unknown |= dict.fromkeys(TEXT_COLUMNS, reason)
            texts = dict.fromkeys(TEXT_COLUMNS[:8], "")
            values |= texts | {"tool": f"{TEXT_PLACEHOLDER}{entry.position}"}
        facts = entry.facts
        is_complete = "redactions" in facts
        values["undoes"] = facts.get("undoes")
        if entry.lane == "command" and not is_complete and values.get("compensates_id"):
            unknown["undoes"] = _EARLIER_VERSION
        values["redactions"] = facts.get("redactions", 0)
        if not is_complete and (
            not self._journal.has_body(entry.position)
            or REDACTION_MARK in self._journal.read_text(entry.position)
        ):
            is_command = entry.lane == "command"
            unknown["redactions"] = _EARLIER_VERSION if is_command else REPORTED_REDACTIONS
        if entry.lane == "command" and (is_complete or "permission" in facts):
            values |= {name: facts.get(name, "") for name in POLICY_COLUMNS}
            values["policy_enforced"] = bool(facts.get("policy_enforced"))
            self._policy[row.id] = ""
        elif entry.lane == "command":
            self._policy[row.id] = _EARLIER_VERSION
        elif not is_command_mark(row.planned_mark):
            if self._names.has_policy(entry.position):
                self._policy[row.id] = REPORTED_POLICY
            else:
                values |= dict.fromkeys(POLICY_COLUMNS[:4], "") | {"policy_enforced": False}
        return values

    def _read_plan_body(
        self, entry: PastEntry, body: Mapping[str, Any], unknown: dict[str, str]
    ) -> dict[str, Any]:
        """Return the columns that the body of a plan gives."""
        session = self._journal.session
        target = body.get("target") or {}
        values: dict[str, Any] = {
            "tool": body.get("tool") or "",
            "call_id": body.get("call_id") or "",
            "turn": body.get("turn") or "",
            "claimed_class": body.get("tool_class") or "",
            "ref": target.get("ref") or "",
            "environment": target.get("environment") or "",
            "resource": target.get("resource") or "",
            "moved_refs": "",
            "ref_class": "",
            "ref_patterns_version": None,
            "repository_id": None,
            "task_id": self._find_task(entry, body["task"]) if body.get("task") else None,
            "parent_effect_id": None,
            "compensates_id": None,
        }
        if body.get("parent_effect"):
            values["parent_effect_id"] = _find_effect(session, body["parent_effect"])
        if body.get("compensates"):
            values["compensates_id"] = (
                UUID(body["compensates"])
                if entry.lane == "command"
                else derive_uuid(session, body["compensates"])
            )
        if target.get("repository"):
            values["repository_id"] = self._names.find_repository(target["repository"])
            if values["repository_id"] is None:
                unknown["repository_id"] = "no repository has the name any more"
        if values["ref"]:
            values |= self._classify(entry, body, values, unknown)
        return values

    def _classify(
        self,
        entry: PastEntry,
        body: Mapping[str, Any],
        values: Mapping[str, Any],
        unknown: dict[str, str],
    ) -> dict[str, Any]:
        """Return what git moves for the ref, and its class by the patterns of that time."""
        arguments, branches = body.get("arguments"), self._branches
        is_unknown = False

        def find_branch() -> str:
            nonlocal is_unknown
            named = arguments.get("branch") if isinstance(arguments, dict) else None
            if isinstance(named, str) and named:
                return named
            branch = branches.find_branch(entry)
            is_unknown = branch is None
            return branch or ""

        moved = " ".join(parse_moved_refs(values["ref"], find_branch))
        repository = values["repository_id"]
        patterns = (
            self._names.find_patterns(repository, entry.position)
            if repository is not None
            else DEFAULT_PATTERNS
        )
        ref_class = classify_refs_again(patterns, moved)
        if is_unknown:
            unknown |= dict.fromkeys(("moved_refs", "ref_class"), "the branch of that time")
        if ref_class is None:
            unknown["ref_class"] = "the patterns of that time were erased"
        return {
            "moved_refs": moved,
            "ref_class": ref_class or "",
            "ref_patterns_version": None if repository is None else patterns.version,
        }

    def _find_task(self, entry: PastEntry, reference: str) -> UUID:
        """Return the id of a task that a plan names by key; a command also by its id."""
        if (
            entry.lane == "command"
            and _UUID.fullmatch(reference)
            and UUID(reference) in self._tasks
        ):
            return UUID(reference)
        return derive_task_id(self._journal.session, reference)

    def finish(
        self,
        effect: UUID,
        folded: RebuiltEffect,
        position: int,
        deadlines: ToolDeadlines,
        stored: StoredEffect | None,
    ) -> FoldedEffect:
        """Complete a folded effect: its key, violations, deadline, and what is unknown."""
        row = folded.row
        unknown = dict(self._unknown.get(folded.plan or 0, {}))
        row.effect_key = self._keys.get(effect, "")
        if not row.effect_key:
            unknown["effect_key"] = self._journal.explain_missing_body(row.opened_position)
            # An id is derived from the key, so a stored key proves itself.
            if stored is not None and derive_uuid(row.session_id, stored.effect_key) == effect:
                row.effect_key = stored.effect_key
                del unknown["effect_key"]
        row.violates = bool(self._violations.get(effect))
        reason = self._policy.get(effect, "")
        if reason and row.planned_mark:
            unknown |= dict.fromkeys(POLICY_COLUMNS, reason)
        if row.state == "dispatched":
            if "tool" in unknown:
                unknown["deadline_us"] = unknown["tool"]
            else:
                row.deadline_us = deadlines.of(folded)
        self._check_permission(row, folded)
        if row.external_reference.startswith(TEXT_PLACEHOLDER):
            unknown["external_reference"] = self._explain(row.external_reference)
        of_attempts = {
            number: {
                name: self._explain(getattr(attempt, name))
                for name in ("process", "external_reference")
                if getattr(attempt, name).startswith(TEXT_PLACEHOLDER)
            }
            for number, attempt in folded.attempts.items()
        }
        return FoldedEffect(row, folded.attempts, position, unknown, of_attempts)

    def _check_permission(self, row: EffectRow, folded: RebuiltEffect) -> None:
        """Correct what a row claims of a policy by the violation that the journal has.

        What runs without permission has a violation. So a report's policy result, which is
        taken from the row, cannot turn the one into the other.
        """
        if row.permission_basis not in ("observe", "policy"):
            return
        has_violation = _UNPERMITTED in self._violations.get(row.id, ())
        if row.permission in ("observed", "bypassed"):
            expected = "bypassed" if has_violation else "observed"
            if has_violation:
                row.permission_basis = "policy"
            for attempt in folded.attempts.values():
                if attempt.permission == row.permission:
                    attempt.permission = expected
            row.permission = expected

    def _explain(self, place: str) -> str:
        return self._journal.explain_missing_body(int(place.removeprefix(TEXT_PLACEHOLDER)))


_UUID: Final = re.compile(r"[0-9a-fA-F-]{32,36}")


def _find_effect(session: UUID, reference: str) -> UUID:
    """Return the id of an effect that a plan names, by id or key (see api/events/effects.py)."""
    try:
        return UUID(reference)
    except ValueError:
        return derive_uuid(session, reference)
