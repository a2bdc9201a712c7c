"""Brings a bundle into an archive: through the verb of each room, in one transaction, as history that never moves.

Ids are derived anew, as if the archive were the project of origin, and every position of the old journal becomes that
of the entry as it is stored here. Nothing of it is put through the doors of agents or people, so nothing is judged,
asked, used or counted again.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, transaction

from ingest.bundles import checking, places, reading
from ingest.bundles.places import Archive
from ingest.bundles.reading import Opened
from inquiry.bundles import history
from inquiry.bundles.shape import BESIDE, COLUMNS, POSITIONS
from inquiry.models_bundle import ImportedBundle, ImportedGate
from journal import brought, entries, erasures
from journal.clock import now_us
from journal.entries import Draft
from journal.ids import derived
from journal.models import Erasure
from ledger import effects, tools
from ledger.models import Attempt, Effect
from ledger.models_tools import Tool
from sessions import (
    agents,
    artifacts,
    checkpoints,
    decisions,
    facts,
    handoffs,
    items,
    people,
    projects,
    references,
    repositories,
    sessions,
    tasks,
)
from sessions.models import Agent, Artifact, Item, Repository, Session, Task
from sessions.models_state import Checkpoint, Decision, Handoff, ObservedFact
from sessions.records import record
from sessions.refused import RefusedError

IMPORTED: Final = "admin.bundle_imported"
_More = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an import did. `is_new` is False where that very file was imported before, and nothing was changed.

    `password` is that of the archive's administrator, where it had to be made for them.
    """

    bundle: ImportedBundle
    is_new: bool
    password: str | None = None


def bring(path: Path, name: str | None, administrator: str | None) -> Outcome:
    """Import the bundle at `path` into the archive called `name` (None: one of its own). All of it or nothing.

    `administrator` is a user's name, for an archive that has to be made. Raises RefusedError.
    """
    sha256 = reading.hash_of(path)
    known = history.known(sha256)
    if known is not None:
        return Outcome(known, is_new=False)
    with reading.opened(path, sha256) as opened:
        checking.check(opened.document, opened.enclosed())
        archive = places.choose(opened, name, administrator)
        stored = places.receive(opened, archive)
        try:
            with transaction.atomic():
                return _Import(opened, archive).run()
        except BaseException as error:
            for file in stored.values():
                file.unlink(missing_ok=True)
            if isinstance(error, DatabaseError):
                raise RefusedError(f"The bundle says what this book cannot hold: {_first_line(error)}.") from error
            raise


def _first_line(error: DatabaseError) -> str:
    return str(error).strip().partition("\n")[0]


@dataclass
class _Import:
    """One run. `ids` are the new ones by the old, `positions` likewise."""

    opened: Opened
    archive: Archive
    now: int = field(default_factory=now_us)
    ids: dict[str, UUID] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    repositories: dict[str, Repository] = field(default_factory=dict)

    def run(self) -> Outcome:
        """Store everything, rooms from the ground up."""
        told, archive = self.opened.document, self.archive
        if archive.project is None:
            self.project = projects.create_archive(archive.name, archive.identity)
            people.add(self.project, archive.administrator, "administrator", archive.password, must_replace=True)
        else:
            self.project = archive.project
        self.session = references.identity(self.project.id, told["session"]["key"])
        self._name_ids()
        self._entries()
        for one in told["agents"]:
            made = agents.bring(self.project, one["name"], one["charter"], one["charter_version"])
            self.agents[one["name"]] = made
        named = {told["session"]["repository"], *(one["repository"] for one in told["effects"])} - {None}
        self.repositories = {name: repositories.ensure(self.project, name) for name in sorted(named)}
        sessions.bring(self._session())
        self._work()
        self._ledger()
        return Outcome(self._keep(), is_new=True, password=archive.password)

    def _name_ids(self) -> None:
        told = self.opened.document
        self.ids[told["origin"]["session"]] = self.session
        for one in told["tasks"]:
            self.ids[one["id"]] = tasks.identity(self.session, one["key"])
        for one in told["effects"]:
            self.ids[one["id"]] = derived(self.session, one["effect_key"])
        for part in ("gates", "artifacts", "checkpoints", "decisions", "handoffs"):
            for one in told[part]:
                self.ids[one["id"]] = derived(self.session, part, one["id"])

    def _id(self, old: str | None) -> UUID | None:
        """The new id of what the bundle tells of; None for what it does not."""
        return None if old is None else self.ids.get(old)

    def _columns(self, model: Any, one: dict[str, Any]) -> dict[str, Any]:
        """The columns that travelled, positions in this book's journal."""
        told = {name: one[name] for name in COLUMNS[model]}
        return told | {name: self.positions[told[name]] for name in POSITIONS & told.keys() if told[name] is not None}

    def _entries(self) -> None:
        """Append the journal's part, a batch at a time, and let go of each: it is the larger half of the document."""
        told = self.opened.document["entries"]
        bundle = derived(UUID(self.opened.document["origin"]["project"]), "bundle", str(self.session)).hex[-8:]
        for start in range(0, len(told), _BATCH):
            batch = told[start : start + _BATCH]
            drafts = [self._draft(one, bundle) for one in batch]
            new = entries.bring(drafts, [_kept(one) for one in batch], self.now)
            self.positions.update({one["position"]: position for one, position in zip(batch, new, strict=True)})
            erased = [(at, one["body"]["erased"]) for one, at in zip(batch, new, strict=True) if _is_erased(one)]
            erasures.bring([Erasure(entry_id=at, project=self.project.id, actor=_THERE, **one) for at, one in erased])
            told[start : start + _BATCH] = [None] * len(batch)

    def _draft(self, one: dict[str, Any], bundle: str) -> Draft:
        return Draft(
            project=self.project.id,
            source=brought.source(bundle, one["source"]),
            event_id=one["id"],
            kind=one["kind"],
            lane=one["lane"],
            actor=brought.actor(one["actor"]),
            text=(one["body"] or {}).get("text", ""),
            facts=brought.facts(one["facts"], one["position"], one["received_us"]),
            session=self.session if one["of_session"] else None,
            effect=self._id(one["effect"]),
            attempt=one["attempt"],
            subject=self._id(one["subject"]),
            claimed_source=one["claimed_source"],
            lease_epoch=one["lease_epoch"],
            producer_seq=one["producer_seq"],
            occurred_us=one["occurred_us"],
        )

    def _session(self) -> Session:
        one = self.opened.document["session"]
        repository = self.repositories[one["repository"]] if one["repository"] is not None else None
        home = {"id": self.session, "project": self.project}
        return Session(**home, agent=self.agents[one["agent"]], repository=repository, **self._columns(Session, one))

    def _made(self, model: Any, told: list[dict[str, Any]], more: _More) -> list[Any]:
        """Rows of what is told; `more` gives what each refers to."""
        home = {"project_id": self.project.id, "session_id": self.session}
        return [model(**home, **self._columns(model, one), **more(one)) for one in told]

    def _rows(self, model: Any, part: str, more: _More) -> list[Any]:
        """The rows of a whole part of the document."""
        return self._made(model, self.opened.document[part], more)

    def _work(self) -> None:
        """What the room of sessions holds of it."""
        told = self.opened.document

        def task(one: dict[str, Any]) -> dict[str, Any]:
            return {"id": self.ids[one["id"]], "parent_id": self._id(one["parent"])}

        def of_an_effect(one: dict[str, Any]) -> dict[str, Any]:
            return {"id": self.ids[one["id"]], "effect": self._id(one["effect"])}

        def handoff(one: dict[str, Any]) -> dict[str, Any]:
            writer, reader = (self.agents.get(one[name] or "") for name in ("written_by", "accepted_by"))
            return {"id": self.ids[one["id"]], "written_by": writer, "accepted_by": reader}

        tasks.bring(self._rows(Task, "tasks", task))
        made = [
            Item(project=self.project, task_id=self.ids[one["task"]], **self._columns(Item, one))
            for one in told["items"]
        ]
        items.bring(made)
        kept = self._rows(Artifact, "artifacts", of_an_effect)
        for row, one in zip(kept, told["artifacts"], strict=True):
            row.stored_at_us = row.stored_at_us if one["enclosed"] else None
        artifacts.bring(kept)
        decisions.bring(self._rows(Decision, "decisions", of_an_effect))
        given = self._rows(Handoff, "handoffs", handoff)
        for row in given:
            row.waits_on = [self._waited_for(thing) for thing in row.waits_on]
        handoffs.bring(given)
        checkpoints.bring(self._rows(Checkpoint, "checkpoints", lambda one: {"id": self.ids[one["id"]]}))
        facts.bring(self._rows(ObservedFact, "facts", lambda _: {}))

    def _waited_for(self, thing: Any) -> Any:
        """A thing that a handoff waits on, by its id here."""
        if not isinstance(thing, dict) or not isinstance(thing.get("ref"), str):
            return thing
        with suppress(ValueError):
            found = self._id(str(UUID(thing["ref"])))
            return thing | {"ref": str(found)} if found is not None else thing
        return thing

    def _ledger(self) -> None:
        """Effects with their attempts, and the declarations by which pages judge them."""
        known = set(self.project.tools.values_list("name", flat=True))
        new = [one for one in self.opened.document["tools"] if one["name"] not in known]
        tools.bring([Tool(project=self.project, **self._columns(Tool, one)) for one in new])

        def effect(one: dict[str, Any]) -> dict[str, Any]:
            compensates = self._id(one["compensates"])
            return {
                "id": self.ids[one["id"]],
                "imported": True,
                "agent": self.agents[one["agent"]],
                "task_id": self._id(one["task"]),
                "repository": self.repositories[one["repository"]] if one["repository"] is not None else None,
                "parent_effect_id": self._id(one["parent_effect"]),
                "compensates_id": compensates,
            }

        told = self.opened.document["effects"]
        for start in range(0, len(told), _BATCH):
            batch = told[start : start + _BATCH]
            rows = self._made(Effect, batch, effect)
            attempts = []
            for row, one in zip(rows, batch, strict=True):
                row.leave_ref = self._leave_ref(row.leave_ref)
                row.undoes = row.undoes if row.compensates_id is not None else None
                home = {"project_id": self.project.id, "effect_id": row.id}
                attempts += [Attempt(**home, **self._columns(Attempt, tried)) for tried in one["attempts"]]
            effects.bring(rows, attempts)

    def _leave_ref(self, ref: str) -> str:
        """What leave refers to, where it is a gate: that gate as it is told here."""
        with suppress(ValueError):
            found = self._id(str(UUID(ref)))
            return found.hex if found is not None else ref
        return ref

    def _keep(self) -> ImportedBundle:
        """What no other room has a place for, and the entry that says what was done."""
        told, sha256 = self.opened.document, self.opened.sha256
        origin, cut = told["origin"], told["cut"]
        position = record(
            self.project.id,
            IMPORTED,
            actor=entries.SYSTEM_SOURCE,
            subject=self.session,
            facts={"sha256": sha256, "version": told["version"], "cut": cut["position"], "origin": origin["session"]},
            words={"project": origin["project_name"], "handle": origin["handle"]},
        )
        exemptions = [one | {"opened_position": self.positions[one["opened_position"]]} for one in told["exemptions"]]
        bundle = ImportedBundle(
            project=self.project,
            session_id=self.session,
            sha256=sha256,
            version=told["version"],
            told={name: told[name] for name in BESIDE} | {"exemptions": exemptions},
            cut_position=cut["position"],
            cut_us=cut["at_us"],
            imported_us=self.now,
            position=position,
        )
        gates = []
        for one in told["gates"]:
            votes = [vote | {"position": self.positions[vote["position"]]} for vote in one["votes"]]
            moved = {name: self.positions[one[name]] for name in POSITIONS & one.keys() if one[name] is not None}
            gates.append(
                ImportedGate(
                    id=self.ids[one["id"]],
                    project=self.project,
                    effect_id=self.ids[one["effect"]],
                    opened_position=moved["opened_position"],
                    told={**one, **moved, "votes": votes, "handle": f"g_{one['opened_position']}"},
                )
            )
        history.keep(bundle, gates)
        return bundle


_THERE: Final = brought.actor("origin")
_BATCH: Final = 500


def _kept(one: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
    """Commitment and salt of an entry: those of origin, but where names gave way and the text is another."""
    body = one["body"] or {}
    commitment = bytes.fromhex(one["commitment"]) if one["commitment"] is not None else None
    if "replaced" in body:
        salt = os.urandom(32)
        return entries.commitment(salt, body["text"]), salt
    return commitment, bytes.fromhex(body["salt"]) if "salt" in body else None


def _is_erased(one: dict[str, Any]) -> bool:
    return one["body"] is not None and "erased" in one["body"]
