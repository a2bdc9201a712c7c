"""Fold sessions and their tasks from entries and bodies, with the folds that write their rows."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User

from accounts.models import Repository
from api.events.parse import EVENT_SCHEMAS
from api.schemas.core import OtherFact
from investigation.history.past_entries import PastEntry
from journal.models import Entry
from rebuild.project_names import ProjectNames
from rebuild.session_journal import SessionJournal
from sessions import sessions, tasks
from sessions.lease_queries import session_as_lease_subject
from sessions.lookup import derive_session_id
from sessions.models import ENDED, Item, Session, Task
from sessions.sessions import SESSION_FACT_KINDS, START_WITHIN_US, SessionFact, StartLinks
from sessions.tasks import TaskFact

NAMED: Final = "session.named"
ONLY_NAMED: Final = "only another session's fact names it"
_EARLIER_VERSION: Final = "the entry is of a version that did not record it"
_NO_ACCOUNT: Final = "the pseudonym stands for no account any more"
_AGENT_LANES: Final = ("command", "evidence")
_LINKS: Final = ("merge_into", "branched_from", "into")
_ID: Final = re.compile(r"[0-9a-fA-F-]{32,36}")
# Columns whose texts come from bodies.
_START_TEXTS: Final = ("title", "branch", "labels", "repository_id", "branched_from_id")
_CHANGE_TEXTS: Final = ("title", "cursor", "merge_intent", "waiting_on")
_HISTORY: Final = "field_history"


@dataclass(slots=True)
class FoldedSession:
    """A session from the journal; `position` is that of the last entry about it."""

    row: Session
    position: int
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class FoldedTasks:
    """The tasks of a session and their items, with the positions of their last entries.

    `lost` has the times of entries that set items which only an unreadable body names, by task.
    `lost_plans` has the positions of plans whose unreadable bodies may have named a task.
    """

    tasks: dict[UUID, Task] = field(default_factory=dict)
    items: dict[tuple[UUID, str], Item] = field(default_factory=dict)
    positions: dict[UUID, int] = field(default_factory=dict)
    unknown: dict[UUID, dict[str, str]] = field(default_factory=dict)
    lost: dict[UUID, set[int]] = field(default_factory=dict)
    lost_plans: set[int] = field(default_factory=set)


def fold_session(
    journal: SessionJournal, names: ProjectNames, effect_count: int, stored: Session | None
) -> FoldedSession | None:
    """Return a session, or None if no entry opens it. `stored` serves only to prove its key."""
    opener = next((entry for entry in journal.entries if _opens(entry)), None)
    if opener is None:
        return None
    writer = next((entry for entry in journal.entries if entry.lane in _AGENT_LANES), opener)
    session = Session(
        id=journal.session,
        project_id=journal.project,
        key="",
        agent_id=writer.agent or UUID(int=0),
        opened_position=opener.position,
        created_at_us=opener.received_us,
        effect_count=effect_count,
    )
    folded = FoldedSession(session, opener.position)
    _prove_key(journal, folded, opener, stored)
    if writer.agent is None:
        folded.unknown["agent_id"] = ONLY_NAMED
    for entry in journal.entries:
        if entry.kind in SESSION_FACT_KINDS and entry.lane in _AGENT_LANES:
            _fold_fact(journal, names, folded, entry)
        elif entry.kind in ("session.described", "session.changed"):
            _add_labels(journal, folded, entry)
        elif entry.is_ours and entry.kind == "session.resumed":
            session.resumes += 1
        elif entry.kind.startswith("lease."):
            _fold_lease(session, entry)
        if entry.kind.startswith(("session.", "lease.", "checkpoint.")):
            folded.position = max(folded.position, entry.position)
    return folded


def _opens(entry: PastEntry) -> bool:
    return entry.lane in _AGENT_LANES or (entry.is_ours and entry.kind == NAMED)


def _prove_key(
    journal: SessionJournal, folded: FoldedSession, opener: PastEntry, stored: Session | None
) -> None:
    """Set the key: the id is derived from it, so a stored key proves itself."""
    candidates = [stored.key] if stored is not None else []
    for entry in journal.entries:
        if entry.lane in _AGENT_LANES:
            body = journal.read_body(entry.position)
            is_opening = (entry.lane, entry.kind) == ("command", "session.started")
            name = "key" if is_opening else "session"
            candidates.append(body.get(name) or "")
            break
    for key in candidates:
        if key and derive_session_id(journal.project, key) == journal.session:
            folded.row.key = key
            return
    folded.unknown["key"] = (
        ONLY_NAMED if opener.kind == NAMED else journal.explain_missing_body(opener.position)
    )


def _fold_fact(
    journal: SessionJournal, names: ProjectNames, folded: FoldedSession, entry: PastEntry
) -> None:
    """Fold a fact about the session as the writer does."""
    session = folded.row
    if entry.facts.get("labelled"):
        _add_labels(journal, folded, entry)
        return
    has_body = journal.has_body(entry.position)
    body = journal.read_body(entry.position)
    values, meant = _read_values(journal, entry, body)
    origin = journal.build_origin(entry)
    is_start = entry.kind == "session.started"
    before = session.started_mark
    if not has_body and entry.kind != "session.ended":
        reason = journal.explain_missing_body(entry.position)
        texts = _START_TEXTS if is_start else _CHANGE_TEXTS
        folded.unknown |= dict.fromkeys((*texts, _HISTORY), reason)
    unknown: dict[str, str] = {}
    links = _find_links(names, entry, body, unknown) if is_start else StartLinks()
    fact = SessionFact(session.id, session.key, origin, entry.kind, entry.position, values)
    sessions.fold_session_fact(session, fact, meant, links)
    if session.started_mark != before:  # this start now describes the session
        people = ("owner_id", "on_behalf_of_id")
        for name in (*people, "repository_id") if has_body else people:
            folded.unknown.pop(name, None)
        folded.unknown |= unknown
        if has_body and not session.field_history.get("title"):
            folded.unknown.pop("title", None)


def _read_values(
    journal: SessionJournal, entry: PastEntry, body: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, UUID | None]]:
    """Return the fields of a fact, and the sessions that its references name."""
    shape = EVENT_SCHEMAS.get(entry.kind, OtherFact)
    values = {name: body.get(name) for name in shape.__struct_fields__}
    meant: dict[str, UUID | None] = {}
    for name in ("status", "mode"):
        if name in entry.facts:
            values[name] = entry.facts[name]
    if entry.kind == "session.started":
        parent = entry.facts.get("parent")
        values["parent"] = parent
        if parent:
            meant[parent] = UUID(parent)
    for name in _LINKS:
        link = entry.facts.get(name)
        if link:
            values[name], meant[link] = link, UUID(link)
        elif isinstance(reference := values.get(name), str) and reference:
            meant[reference] = _find_session(journal, reference)
    return values, meant


def _find_session(journal: SessionJournal, reference: str) -> UUID:
    """Return the session of a reference; a text like an id is one if that session has entries."""
    if _ID.fullmatch(reference) and len(reference) in (32, 36):
        identity = UUID(reference)
        if Entry.objects.filter(session=identity, project=journal.project).exists():
            return identity
    return derive_session_id(journal.project, reference)


def _find_links(
    names: ProjectNames, entry: PastEntry, body: Mapping[str, Any], unknown: dict[str, str]
) -> StartLinks:
    """Return the people and the repository of a start."""
    people: dict[str, User | None] = {}
    for name in ("owner", "on_behalf_of"):
        pseudonym = entry.facts.get(name)
        account = names.find_person(pseudonym) if pseudonym else None
        people[name] = None if account is None else User(id=account)
        if pseudonym and account is None:
            unknown[f"{name}_id"] = _NO_ACCOUNT
    if body.get("owner") and "owner" not in entry.facts:
        unknown["owner_id"] = _EARLIER_VERSION
    repository = None
    if body.get("repository"):
        identity = names.find_repository(body["repository"])
        repository = None if identity is None else Repository(id=identity)
        if repository is None:
            unknown["repository_id"] = "no repository has the name any more"
    return StartLinks(people["owner"], people["on_behalf_of"], repository)


def _add_labels(journal: SessionJournal, folded: FoldedSession, entry: PastEntry) -> None:
    """Add the labels that a second opening brings; those that exist keep their values."""
    if entry.lane != "command" or not entry.facts.get("labelled"):
        return
    if journal.has_body(entry.position):
        labels = journal.read_body(entry.position).get("labels") or {}
        folded.row.labels = {**labels, **folded.row.labels}
    else:
        folded.unknown["labels"] = journal.explain_missing_body(entry.position)


def _fold_lease(session: Session, entry: PastEntry) -> None:
    """Follow the session's lease: its fence, and until when a new holder is expected."""
    epoch = entry.facts.get("epoch")
    if entry.lane == "evidence" or epoch is None:
        return
    is_open = session.status not in ENDED
    if entry.kind == "lease.acquired" and entry.facts.get("kind") == "session":
        session.fence = max(epoch, session.fence or 0)
        session.start_by_us = None
    elif entry.kind == "lease.released" and entry.subject == _lease_of_session(session):
        if entry.facts.get("why") == "session_ended":
            return
        session.fence = max(epoch + 1, session.fence or 0)
        session.start_by_us = None
        if session.mode == "leased" and is_open:
            session.start_by_us = entry.received_us + START_WITHIN_US


def _lease_of_session(session: Session) -> UUID:
    return session_as_lease_subject(session.id).identity(session.project_id)


def fold_tasks(journal: SessionJournal) -> FoldedTasks:
    """Return the tasks and items of a session."""
    folded = FoldedTasks()
    keys = _learn_task_keys(journal)
    for batch in _group_by_request(journal):
        for entry in batch:
            if entry.kind in tasks.TASK_FACT_KINDS and not _sets_items(journal, entry):
                _fold_task(journal, folded, keys, entry)
        for entry in batch:
            _name_task(journal, folded, keys, entry)
        for entry in batch:
            if _sets_items(journal, entry):
                _fold_items(journal, folded, entry)
    _forget_first_plans(folded)
    return folded


def _forget_first_plans(folded: FoldedTasks) -> None:
    """Add what is unknown of tasks that an unreadable plan may have named before they were."""
    first = min(folded.lost_plans, default=None)
    for task in folded.tasks.values():
        if first is not None and first < task.opened_position:
            unknown = folded.unknown.setdefault(task.id, {})
            unknown |= dict.fromkeys(OF_FIRST_PLAN, ERASED_PLAN)


OF_FIRST_PLAN: Final = ("opened_position", "created_at_us", "updated_at_us")
ERASED_PLAN: Final = "a plan that may have named the task has no body any more"


def _group_by_request(journal: SessionJournal) -> Iterator[list[PastEntry]]:
    """Group the entries of one batch of reports, whose tasks are stored first."""
    group: list[PastEntry] = []
    for entry in journal.entries:
        if entry.lane not in _AGENT_LANES:
            continue
        if group and (
            entry.received_us != group[0].received_us or "command" in (entry.lane, group[0].lane)
        ):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _learn_task_keys(journal: SessionJournal) -> dict[UUID, str]:
    keys: dict[UUID, str] = {}
    for entry in journal.entries:
        if entry.kind.startswith(("task.", "item.", "effect.planned")):
            body = journal.read_body(entry.position)
            for name in ("key", "task", "parent"):
                if isinstance(body.get(name), str):
                    keys[tasks.derive_task_id(journal.session, body[name])] = body[name]
    return keys


def _sets_items(journal: SessionJournal, entry: PastEntry) -> bool:
    """Return True for the entry of a command or a report about items."""
    return entry.kind in ("item.done", "item.failed") or (
        entry.kind == "task.changed" and entry.lane == "command" and "count" in entry.facts
    )


def _fold_task(
    journal: SessionJournal, folded: FoldedTasks, keys: Mapping[UUID, str], entry: PastEntry
) -> None:
    if entry.subject is None:
        return
    body = journal.read_body(entry.position)
    values = {name: body.get(name) for name in _TASK_FIELDS}
    fact = TaskFact(
        journal.session,
        keys.get(entry.subject, ""),
        journal.build_origin(entry),
        entry.kind,
        entry.position,
        values,
    )
    task = folded.tasks.get(entry.subject)
    if task is None:
        task = tasks.build_task(fact)
        task.id = entry.subject
        folded.tasks[task.id] = task
    unknown = folded.unknown.setdefault(task.id, {})
    if not journal.has_body(entry.position) and entry.kind != "task.done":
        reason = journal.explain_missing_body(entry.position)
        unknown |= dict.fromkeys((*_TASK_TEXTS, _HISTORY), reason)
        values["state"] = entry.facts.get("state")
    if not task.key:
        unknown["key"] = journal.explain_missing_body(entry.position)
    parent = values.get("parent") if entry.kind == "task.created" else None
    parent_id = _find_parent(journal, folded, parent) if parent else None
    tasks.fold_task_fact(task, fact, parent_id)
    folded.positions[task.id] = entry.position


_TASK_FIELDS: Final = ("title", "parent", "state", "priority", "worker", "branch_label")
_TASK_TEXTS: Final = ("title", "priority", "worker", "branch_label", "parent_id")


def _find_parent(journal: SessionJournal, folded: FoldedTasks, reference: str) -> UUID:
    """Return the id of a parent named by key, or by the id of a task that is there."""
    if _ID.fullmatch(reference):
        try:
            identity = UUID(reference)
        except ValueError:
            pass
        else:
            if identity in folded.tasks:
                return identity
    return tasks.derive_task_id(journal.session, reference)


def _name_task(
    journal: SessionJournal, folded: FoldedTasks, keys: Mapping[UUID, str], entry: PastEntry
) -> None:
    """Store the task that a reported plan or item mentions, if no fact has created it yet."""
    if entry.lane != "evidence":
        return
    identity = None
    if entry.kind in ("item.done", "item.failed"):
        identity = entry.subject
    elif entry.kind == "effect.planned" and "intent" in entry.facts:
        if not journal.has_body(entry.position):
            folded.lost_plans.add(entry.position)
        name = journal.read_body(entry.position).get("task")
        identity = tasks.derive_task_id(journal.session, name) if name else None
    if identity is None or identity in folded.tasks:
        return
    folded.tasks[identity] = Task(
        id=identity,
        project_id=journal.project,
        session_id=journal.session,
        key=keys.get(identity, ""),
        opened_position=entry.position,
        created_at_us=entry.received_us,
        updated_at_us=entry.received_us,
    )
    folded.positions[identity] = entry.position
    if identity not in keys:
        reason = journal.explain_missing_body(entry.position)
        folded.unknown.setdefault(identity, {})["key"] = reason


def _fold_items(journal: SessionJournal, folded: FoldedTasks, entry: PastEntry) -> None:
    """Set the items that an entry is about; per item the latest fact counts."""
    if entry.subject is None:
        return
    task = folded.tasks.get(entry.subject)
    if task is None:
        if folded.lost_plans:  # one of them may have named the task
            folded.lost.setdefault(entry.subject, set()).add(entry.received_us)
        return
    task.updated_at_us = max(task.updated_at_us, entry.received_us)
    folded.positions[task.id] = entry.position
    body, origin = journal.read_body(entry.position), journal.build_origin(entry)
    if not journal.has_body(entry.position):
        folded.lost.setdefault(task.id, set()).add(entry.received_us)
        return
    states: Mapping[str, str] = (
        {item["key"]: item["state"] for item in body.get("items") or ()}
        if entry.lane == "command"
        else {body["item"]: entry.kind.removeprefix("item.")}
    )
    for key, state in states.items():
        before = folded.items.get((task.id, key))
        declares = state == "pending" and (before is None or before.state == "pending")
        is_declared = declares and entry.lane == "command"
        mark = "" if is_declared else origin.latest_mark(entry.position)
        if before is None or before.mark < mark:
            folded.items[task.id, key] = Item(
                project_id=journal.project,
                task_id=task.id,
                key=key,
                state=state,
                mark=mark,
                changed_at_us=entry.received_us,
            )
