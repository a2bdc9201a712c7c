"""Imports a bundle into an archive in one transaction, as read-only history.

Each table is written by its own module. Ids are derived as if the archive were the project of
origin, and journal positions are translated to those of the imported entries. Nothing passes
through commands of agents or people, so no policy, gate, permission or counter is involved.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, transaction

from accounts import agents, people, projects, repositories
from accounts.audit_log import record_admin_entry
from accounts.models import Agent, Repository
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import derive_uuid
from importers.bundles import checksums, target_archive, validate, zip_reader
from importers.bundles.target_archive import TargetArchive
from importers.bundles.zip_reader import OpenBundle
from investigation.bundles import imported_gates as bundles_imported
from investigation.bundles import imported_rows
from investigation.bundles.schema import EXPORTED_COLUMNS, POSITION_COLUMNS, UNMAPPED_PARTS
from investigation.models import ImportedBundle, ImportedGate
from journal import entries, erasures
from journal import imported_entries as journal_imported
from journal.entries import Draft
from journal.models import Erasure
from ledger.models import Attempt, Effect, Tool
from ledger.store import writer as store_writer
from ledger.tools import registry
from sessions import (
    artifacts,
    checkpoints,
    decisions,
    facts,
    handoffs,
    items,
    lookup,
    sessions,
    tasks,
)
from sessions.models import (
    Artifact,
    Checkpoint,
    Decision,
    Handoff,
    Item,
    ObservedFact,
    Session,
    Task,
)

BUNDLE_IMPORTED: Final = "admin.bundle_imported"
_ReferenceColumns = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Result of an import. `is_new` is False if the file was imported before.

    `password` is the generated password of the archive's administrator, if the account is new.
    """

    bundle: ImportedBundle
    is_new: bool
    password: str | None = None


def import_bundle(path: Path, name: str | None, administrator: str | None) -> ImportResult:
    """Import the bundle at `path` into the archive `name` (None: a new one).

    Imports everything or nothing. `administrator` is the name of a user, required for a new
    archive. Raises ChangeRefused.
    """
    sha256 = checksums.hash_file(path)
    imported = bundles_imported.find_import(sha256)
    if imported is not None:
        return ImportResult(imported, is_new=False)
    with zip_reader.open_bundle(path, sha256) as opened:
        validate.validate_document(opened.document, opened.enclosed())
        archive = target_archive.choose_archive(opened, name, administrator)
        stored = target_archive.store_artifact_files(opened, archive)
        try:
            with transaction.atomic():
                return _Import(opened, archive).run()
        except BaseException as error:
            for file in stored.values():
                file.unlink(missing_ok=True)
            if isinstance(error, DatabaseError):
                raise ChangeRefused(
                    f"The database rejected the bundle: {_first_line(error)}."
                ) from error
            raise


def _first_line(error: DatabaseError) -> str:
    return str(error).strip().partition("\n")[0]


@dataclass
class _Import:
    """One import. `ids` and `positions` map old values to new ones."""

    opened: OpenBundle
    archive: TargetArchive
    now: int = field(default_factory=now_us)
    ids: dict[str, UUID] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    repositories: dict[str, Repository] = field(default_factory=dict)

    def run(self) -> ImportResult:
        """Store everything, lower layers first."""
        document, archive = self.opened.document, self.archive
        if archive.project is None:
            self.project = projects.create_archive(archive.name, archive.identity)
            people.add_project_member(
                self.project,
                archive.administrator,
                "administrator",
                archive.password,
                must_replace=True,
            )
        else:
            self.project = archive.project
        self.session = lookup.derive_session_id(self.project.id, document["session"]["key"])
        self._assign_ids()
        self._import_entries()
        for source_row in document["agents"]:
            agent = agents.import_agent(
                self.project,
                source_row["name"],
                source_row["charter"],
                source_row["charter_version"],
            )
            self.agents[source_row["name"]] = agent
        repository_names = {
            document["session"]["repository"],
            *(source_row["repository"] for source_row in document["effects"]),
        } - {None}
        self.repositories = {
            name: repositories.ensure_repository(self.project, name)
            for name in sorted(repository_names)
        }
        sessions.import_session(self._build_session())
        self._import_working_state()
        self._import_effects()
        return ImportResult(self._store_bundle(), is_new=True, password=archive.password)

    def _assign_ids(self) -> None:
        document = self.opened.document
        self.ids[document["origin"]["session"]] = self.session
        for source_row in document["tasks"]:
            self.ids[source_row["id"]] = tasks.derive_task_id(self.session, source_row["key"])
        for source_row in document["effects"]:
            self.ids[source_row["id"]] = derive_uuid(self.session, source_row["effect_key"])
        for part in ("gates", "artifacts", "checkpoints", "decisions", "handoffs"):
            for source_row in document[part]:
                self.ids[source_row["id"]] = derive_uuid(self.session, part, source_row["id"])

    def _map_id(self, old_id: str | None) -> UUID | None:
        """Return the new id of an object in the bundle; None if it has no such object."""
        return None if old_id is None else self.ids.get(old_id)

    def _map_columns(self, model: Any, source_row: dict[str, Any]) -> dict[str, Any]:
        """Return the exported columns, with positions translated to this journal."""
        values = {name: source_row[name] for name in EXPORTED_COLUMNS[model]}
        return values | {
            name: self.positions[values[name]]
            for name in POSITION_COLUMNS & values.keys()
            if values[name] is not None
        }

    def _import_entries(self) -> None:
        """Append the journal entries in batches, and free each batch to save memory."""
        exported = self.opened.document["entries"]
        bundle = derive_uuid(
            UUID(self.opened.document["origin"]["project"]), "bundle", str(self.session)
        ).hex[-8:]
        for start in range(0, len(exported), _BATCH):
            batch = exported[start : start + _BATCH]
            drafts = [self._build_draft(entry, bundle) for entry in batch]
            new_positions = entries.import_entries(
                drafts, [_get_commitment(entry) for entry in batch], self.now
            )
            self.positions.update(
                {
                    entry["position"]: position
                    for entry, position in zip(batch, new_positions, strict=True)
                }
            )
            erased = [
                (entry_position, entry["body"]["erased"])
                for entry, entry_position in zip(batch, new_positions, strict=True)
                if _is_erased(entry)
            ]
            erasures.import_erasures(
                [
                    Erasure(
                        entry_id=entry_position,
                        project=self.project.id,
                        actor=erasures.IMPORTED_ACTOR,
                        **entry,
                    )
                    for entry_position, entry in erased
                ]
            )
            exported[start : start + _BATCH] = [None] * len(batch)

    def _build_draft(self, entry: dict[str, Any], bundle: str) -> Draft:
        return Draft(
            project=self.project.id,
            source=journal_imported.imported_source(bundle, entry["source"]),
            event_id=entry["id"],
            kind=entry["kind"],
            lane=entry["lane"],
            actor=journal_imported.imported_actor(entry["actor"]),
            text=(entry["body"] or {}).get("text", ""),
            facts=journal_imported.imported_facts(
                entry["facts"], entry["position"], entry["received_us"]
            ),
            session=self.session if entry["of_session"] else None,
            effect=self._map_id(entry["effect"]),
            attempt=entry["attempt"],
            subject=self._map_id(entry["subject"]),
            claimed_source=entry["claimed_source"],
            lease_epoch=entry["lease_epoch"],
            producer_seq=entry["producer_seq"],
            occurred_us=entry["occurred_us"],
        )

    def _build_session(self) -> Session:
        source_row = self.opened.document["session"]
        repository = (
            self.repositories[source_row["repository"]]
            if source_row["repository"] is not None
            else None
        )
        parents = {"id": self.session, "project": self.project}
        return Session(
            **parents,
            agent=self.agents[source_row["agent"]],
            repository=repository,
            **self._map_columns(Session, source_row),
        )

    def _build_rows(
        self, model: Any, records: list[dict[str, Any]], get_references: _ReferenceColumns
    ) -> list[Any]:
        """Build model instances from exported records; `get_references` adds theirs."""
        parents = {"project_id": self.project.id, "session_id": self.session}
        return [
            model(**parents, **self._map_columns(model, source_row), **get_references(source_row))
            for source_row in records
        ]

    def _build_part(self, model: Any, part: str, get_references: _ReferenceColumns) -> list[Any]:
        """Build the model instances of one part of the document."""
        return self._build_rows(model, self.opened.document[part], get_references)

    def _import_working_state(self) -> None:
        """Import the tables of the sessions app."""
        document = self.opened.document

        def task(source_row: dict[str, Any]) -> dict[str, Any]:
            return {
                "id": self.ids[source_row["id"]],
                "parent_id": self._map_id(source_row["parent"]),
            }

        def of_an_effect(source_row: dict[str, Any]) -> dict[str, Any]:
            return {"id": self.ids[source_row["id"]], "effect": self._map_id(source_row["effect"])}

        def handoff(source_row: dict[str, Any]) -> dict[str, Any]:
            writer, reader = (
                self.agents.get(source_row[name] or "") for name in ("written_by", "accepted_by")
            )
            return {"id": self.ids[source_row["id"]], "written_by": writer, "accepted_by": reader}

        tasks.import_tasks(self._build_part(Task, "tasks", task))
        task_items = [
            Item(
                project=self.project,
                task_id=self.ids[source_row["task"]],
                **self._map_columns(Item, source_row),
            )
            for source_row in document["items"]
        ]
        items.import_items(task_items)
        artifact_rows = self._build_part(Artifact, "artifacts", of_an_effect)
        for row, source_row in zip(artifact_rows, document["artifacts"], strict=True):
            row.stored_at_us = row.stored_at_us if source_row["enclosed"] else None
        artifacts.import_artifacts(artifact_rows)
        decisions.import_decisions(self._build_part(Decision, "decisions", of_an_effect))
        handoff_rows = self._build_part(Handoff, "handoffs", handoff)
        for row in handoff_rows:
            row.waits_on = [self._map_wait(reference) for reference in row.waits_on]
        handoffs.import_handoffs(handoff_rows)
        checkpoints.import_checkpoints(
            self._build_part(
                Checkpoint, "checkpoints", lambda source_row: {"id": self.ids[source_row["id"]]}
            )
        )
        facts.import_observed_facts(self._build_part(ObservedFact, "facts", lambda _: {}))

    def _map_wait(self, reference: Any) -> Any:
        """Translate the id of an object that a handoff waits on."""
        if not isinstance(reference, dict) or not isinstance(reference.get("ref"), str):
            return reference
        with suppress(ValueError):
            identity = self._map_id(str(UUID(reference["ref"])))
            return reference | {"ref": str(identity)} if identity is not None else reference
        return reference

    def _import_effects(self) -> None:
        """Import effects with their attempts, and the tool declarations of their verdicts."""
        declared = set(self.project.tools.values_list("name", flat=True))
        new_tools = [
            source_row
            for source_row in self.opened.document["tools"]
            if source_row["name"] not in declared
        ]
        registry.import_tools(
            [
                Tool(project=self.project, **self._map_columns(Tool, source_row))
                for source_row in new_tools
            ]
        )

        def effect(source_row: dict[str, Any]) -> dict[str, Any]:
            compensates = self._map_id(source_row["compensates"])
            return {
                "id": self.ids[source_row["id"]],
                "imported": True,
                "agent": self.agents[source_row["agent"]],
                "task_id": self._map_id(source_row["task"]),
                "repository": self.repositories[source_row["repository"]]
                if source_row["repository"] is not None
                else None,
                "parent_effect_id": self._map_id(source_row["parent_effect"]),
                "compensates_id": compensates,
            }

        effects_data = self.opened.document["effects"]
        for start in range(0, len(effects_data), _BATCH):
            batch = effects_data[start : start + _BATCH]
            rows = self._build_rows(Effect, batch, effect)
            attempts = []
            for row, source_row in zip(rows, batch, strict=True):
                row.permission_ref = self._map_permission_ref(row.permission_ref)
                row.undoes = row.undoes if row.compensates_id is not None else None
                parents = {"project_id": self.project.id, "effect_id": row.id}
                attempts += [
                    Attempt(**parents, **self._map_columns(Attempt, tried))
                    for tried in source_row["attempts"]
                ]
            store_writer.import_effects(rows, attempts)

    def _map_permission_ref(self, ref: str) -> str:
        """Translate the permission's reference if it is a gate."""
        with suppress(ValueError):
            identity = self._map_id(str(UUID(ref)))
            return identity.hex if identity is not None else ref
        return ref

    def _store_bundle(self) -> ImportedBundle:
        """Store gates, other data without a table, and the import's journal entry."""
        document, sha256 = self.opened.document, self.opened.sha256
        origin, cut = document["origin"], document["cut"]
        exemptions = [
            source_row | {"opened_position": self.positions[source_row["opened_position"]]}
            for source_row in document["exemptions"]
        ]
        bundle = ImportedBundle(
            project=self.project,
            session_id=self.session,
            sha256=sha256,
            version=document["version"],
            document={name: document[name] for name in UNMAPPED_PARTS} | {"exemptions": exemptions},
            cut_position=cut["position"],
            cut_us=cut["at_us"],
            imported_us=self.now,
            position=0,
        )
        gates = []
        for source_row in document["gates"]:
            votes = [
                vote | {"position": self.positions[vote["position"]]}
                for vote in source_row["votes"]
            ]
            new_positions = {
                name: self.positions[source_row[name]]
                for name in POSITION_COLUMNS & source_row.keys()
                if source_row[name] is not None
            }
            gates.append(
                ImportedGate(
                    id=self.ids[source_row["id"]],
                    project=self.project,
                    effect_id=self.ids[source_row["effect"]],
                    opened_position=new_positions["opened_position"],
                    document={
                        **source_row,
                        **new_positions,
                        "votes": votes,
                        "handle": f"g_{source_row['opened_position']}",
                    },
                )
            )
        bundles_imported.store_import(bundle, gates)
        position = record_admin_entry(
            self.project.id,
            BUNDLE_IMPORTED,
            actor=entries.SYSTEM_SOURCE,
            subject=self.session,
            facts={
                "sha256": sha256,
                "version": document["version"],
                "cut": cut["position"],
                "origin": origin["session"],
                imported_rows.FACT: imported_rows.digest_imported_rows(self.session),
            },
            words={"project": origin["project_name"], "handle": origin["handle"]},
        )
        bundles_imported.set_import_position(bundle, position)
        return bundle


_BATCH: Final = 500


def _get_commitment(entry: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
    """Return commitment and salt of an entry; new ones if names were replaced."""
    body = entry["body"] or {}
    commitment = bytes.fromhex(entry["commitment"]) if entry["commitment"] is not None else None
    if "replaced" in body:
        salt = os.urandom(32)
        return entries.compute_commitment(salt, body["text"]), salt
    return commitment, bytes.fromhex(body["salt"]) if "salt" in body else None


def _is_erased(entry: dict[str, Any]) -> bool:
    return entry["body"] is not None and "erased" in entry["body"]
