"""Load the parts of a session's bundle one by one, so that no session must fit into memory.

People are exported as pseudonyms: user names in columns and in known places of bodies are replaced.
Names that agents wrote in free text cannot be recognised and are exported as stored.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db.models import Count, Max, Q, QuerySet

from accounts.models import Agent, Person
from approvals.models import Exemption, Gate
from db import long_numbers
from investigation.bundles.schema import FORMAT, VERSION, exported_columns
from journal import entries
from journal.models import Entry, Erasure
from ledger import stops as ledger_stops
from ledger.models import Attempt, Effect, Tool
from ledger.verdicts import evaluate
from proofs import proof_document
from proofs.models import TreeHead
from recovery import resume
from sessions import artifacts as stored
from sessions.models import (
    Artifact,
    Checkpoint,
    Decision,
    Handoff,
    Item,
    Lease,
    ObservedFact,
    Session,
    Task,
)

BATCH_SIZE: Final = 500  # rows read together
# Exports and searches of the session are not part of it. Views of its gates are: they show what
# reviewers saw before they voted.
_EXCLUDED_KINDS: Final = ("access.exported", "access.searched")
# Where bodies hold user names: kind -> paths to a name or a list of names.
NAME_PATHS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "session.started": (("owner",), ("on_behalf_of",)),
    "gate.requested": (("asks", "people"),),
}
LINKS: Final = ("parent", "branched_from", "merge_into", "merged_into")
OMISSIONS: Final = (
    (
        "names and addresses of people",
        "people are pseudonyms, as in the journal",
    ),
    ("tokens and keys", "they do not belong to a session"),
    (
        "policy texts",
        "gates and effects name set, version and rule; requirements are complete",
    ),
    (
        "messages",
        "they belong to their recipients; sent messages are among the entries",
    ),
    ("sub-sessions", "each has its own bundle"),
    ("heartbeats per minute", "the lease has the time of the last heartbeat"),
    (
        "views and exports of the session",
        "they belong to the original journal; views of gates are included",
    ),
    ("entries not committed at export", "they follow after the cut in the original journal"),
)


@dataclass(frozen=True, slots=True)
class ExportCut:
    """The end of an export: last journal position, its time, and the number of entries."""

    position: int
    at_us: int
    count: int


def load_cut(session: Session) -> ExportCut:
    """Return the position, time and count of the latest entries of a session."""
    last = _query_entries(session).aggregate(
        count=Count("pk"), last=Max("position"), at=Max("received_us")
    )
    return ExportCut(last["last"] or 0, last["at"] or 0, last["count"])


def _query_entries(session: Session) -> "QuerySet[Any]":
    """Query the session's entries, grants of exemptions it used, and what names expired texts."""
    granted = list(
        Exemption.objects.filter(id__in=_exemption_ids(session)).values_list(
            "opened_position", flat=True
        )
    )
    expired = Erasure.objects.filter(entry__session=session.id, expired_by__isnull=False)
    granted += [at for at in expired.values_list("expired_by", flat=True).distinct() if at]
    entries = Q(session=session.id) | Q(position__in=granted) if granted else Q(session=session.id)
    gates = Gate.objects.filter(session=session).values("id")
    return (
        Entry.objects.filter(entries)
        .exclude(kind__in=_EXCLUDED_KINDS)
        .exclude(~Q(subject__in=gates), kind="access.viewed")
    )


def _exemption_ids(session: Session) -> set[str]:
    """Return the exemptions that permitted effects of the session."""
    rows = Effect.objects.filter(session=session, permission_basis="exemption").order_by()
    return set(rows.values_list("permission_ref", flat=True).distinct())


@dataclass
class SessionExport:
    """A session up to `cut`. Long lists are loaded lazily."""

    session: Session
    cut: ExportCut
    _known: dict[int, str] = field(default_factory=dict)

    def person(self, user: int | None) -> str | None:
        """Return the pseudonym of a user id; a keyed digest for users without one."""
        if user is None:
            return None
        if user not in self._known:
            person = Person.objects.filter(user=user).values_list("pseudonym", flat=True).first()
            self._known[user] = person or f"p_{entries.keyed_digest('person', str(user))[:16]}"
        return self._known[user]

    def effects_of(self) -> "QuerySet[Any]":
        """Query its effects in journal order."""
        joined = Effect.objects.filter(session=self.session).select_related("agent", "repository")
        return joined.order_by("opened_position", "id")

    def head(self) -> dict[str, Any]:
        """Return the parts of fixed size."""
        session, evaluation = self.session, self.resume
        links = {name: getattr(session, name) for name in LINKS}
        repository = session.repository.name if session.repository is not None else None
        return {
            "format": FORMAT,
            "version": VERSION,
            "origin": {
                "project": session.project_id,
                "project_name": session.project.name,
                "session": session.id,
                "handle": str(session),
            },
            "cut": {"position": self.cut.position, "at_us": self.cut.at_us},
            "left_out": [{"what": what, "why": why} for what, why in OMISSIONS],
            "links": {
                name: link and {"key": link.key, "handle": str(link)}
                for name, link in links.items()
            },
            "session": exported_columns(session, agent=session.agent.name, repository=repository),
            "owner": self.person(session.owner_id),
            "on_behalf_of": self.person(session.on_behalf_of_id),
            "resume": {
                "safe": evaluation.safe,
                "sentence": resume.resume_sentence(evaluation),
                "open": len(evaluation.open),
            },
        }

    @cached_property
    def resume(self) -> resume.ResumeState:
        """The resume state as of the cut."""
        return resume.decide_resume(resume.load_open_effects(self.session, self.cut.at_us))

    def parts(self) -> list[tuple[str, Callable[[], Iterator[dict[str, Any]]]]]:
        """Return the lists of the document by name, in order."""
        return [
            ("agents", self.agents),
            ("tools", self.tools),
            ("tasks", self.tasks),
            ("items", self.items),
            ("effects", self.effects),
            ("gates", self.gates),
            ("exemptions", self.exemptions),
            ("stops", self.stops),
            ("leases", self.leases),
            ("decisions", self.decisions),
            ("handoffs", self.handoffs),
            ("checkpoints", self.checkpoints),
            ("facts", self.facts),
            ("artifacts", self.artifacts),
            ("entries", self.entries),
        ]

    def agents(self) -> Iterator[dict[str, Any]]:
        """Yield every agent that a row names."""
        of_session = (Effect, Handoff, Lease, Gate)
        named = {self.session.agent_id}
        for model, names in zip(
            of_session,
            (("agent",), ("written_by", "accepted_by"), ("agent",), ("agent",)),
            strict=True,
        ):
            for name in names:
                named |= set(
                    _rows_of_session(model, self.session).values_list(name, flat=True).distinct()
                )
        for agent in Agent.objects.filter(id__in=named - {None}).order_by("name"):
            yield {
                "name": agent.name,
                "charter": agent.charter,
                "charter_version": agent.charter_version,
            }

    def tools(self) -> Iterator[dict[str, Any]]:
        """Yield the declarations of the tools it used."""
        named = Effect.objects.filter(session=self.session).exclude(tool="").values("tool")
        for tool in Tool.objects.filter(project=self.session.project_id, name__in=named).order_by(
            "name"
        ):
            yield exported_columns(tool)

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield its tasks in journal order."""
        for task in _iterate(
            _rows_of_session(Task, self.session).order_by("opened_position", "id")
        ):
            yield exported_columns(task, id=task.id, parent=task.parent_id)

    def items(self) -> Iterator[dict[str, Any]]:
        """Yield the items of its tasks in the order reported."""
        for item in _iterate(Item.objects.filter(task__session=self.session).order_by("id")):
            yield exported_columns(item, task=item.task_id)

    def effects(self) -> Iterator[dict[str, Any]]:
        """Yield its effects with attempts and the verdict as of the cut."""
        for effects in _iterate_batches(self.effects_of()):
            attempts: dict[UUID, list[dict[str, Any]]] = {}
            for attempt in Attempt.objects.filter(effect__in=effects).order_by("effect", "number"):
                attempts.setdefault(attempt.effect_id, []).append(exported_columns(attempt))
            evaluation = evaluate.evaluate_effects(
                self.session.project_id, effects, self.cut.at_us, None
            )
            for effect in effects:
                verdict = evaluation[effect.id].verdict
                yield exported_columns(
                    effect,
                    id=effect.id,
                    agent=effect.agent.name,
                    task=effect.task_id,
                    repository=effect.repository.name if effect.repository is not None else None,
                    parent_effect=effect.parent_effect_id,
                    compensates=effect.compensates_id,
                    attempts=attempts.get(effect.id, []),
                    verdict={
                        "row": verdict.row,
                        "answer": verdict.answer,
                        "reason": verdict.reason,
                    },
                )

    def gates(self) -> Iterator[dict[str, Any]]:
        """Yield its gates with votes. User names in requirements become pseudonyms."""
        rows = (
            _rows_of_session(Gate, self.session)
            .select_related("agent", "policy_set")
            .prefetch_related("votes")
        )
        for gate in _iterate(rows.order_by("opened_position", "id")):
            fields = exported_columns(gate)
            reviewers = {"asks": dict(fields["requirement"])}
            _replace_names(reviewers, ("asks", "people"))
            fields["requirement"] = reviewers["asks"]
            votes = sorted(gate.votes.all(), key=lambda vote: vote.position)
            yield fields | {
                "id": gate.id,
                "effect": gate.effect_id,
                "agent": gate.agent.name,
                "policy_set": str(gate.policy_set) if gate.policy_set is not None else None,
                "requester": self.person(gate.requester_id),
                "session_owner": self.person(gate.session_owner_id),
                "agent_owner": self.person(gate.agent_owner_id),
                "votes": [exported_columns(vote) for vote in votes],
            }

    def exemptions(self) -> Iterator[dict[str, Any]]:
        """Yield the exemptions that permit its effects; the grant's entry holds the reason."""
        named = _exemption_ids(self.session)
        for exemption in Exemption.objects.filter(id__in=named).order_by("opened_position"):
            yield exported_columns(
                exemption, id=exemption.id, granted_by=self.person(exemption.granted_by_id)
            )

    def stops(self) -> Iterator[dict[str, Any]]:
        """Yield the stops in force that cover the whole session."""
        session = self.session
        for stop in ledger_stops.load_stops(session.project_id):
            if (
                ledger_stops.find_covering_stop([stop], session.id, session.agent_id, "", None)
                is not None
            ):
                yield exported_columns(stop, set_by=self.person(stop.set_by_id))

    def leases(self) -> Iterator[dict[str, Any]]:
        """Yield its leases and those of its tasks, as they are now."""
        for lease in (
            _rows_of_session(Lease, self.session)
            .select_related("agent")
            .order_by("opened_position")
        ):
            yield exported_columns(lease, task=lease.task_id, agent=lease.agent.name)

    def decisions(self) -> Iterator[dict[str, Any]]:
        """Yield the decisions that its agent recorded."""
        for decision in _iterate(
            _rows_of_session(Decision, self.session).order_by("opened_position", "id")
        ):
            yield exported_columns(decision, id=decision.id, effect=decision.effect)

    def handoffs(self) -> Iterator[dict[str, Any]]:
        """Yield its handoffs."""
        rows = _rows_of_session(Handoff, self.session).select_related("written_by", "accepted_by")
        for handoff in _iterate(rows.order_by("opened_position", "id")):
            writer, reader = (who and who.name for who in (handoff.written_by, handoff.accepted_by))
            yield exported_columns(handoff, id=handoff.id, written_by=writer, accepted_by=reader)

    def checkpoints(self) -> Iterator[dict[str, Any]]:
        """Yield its stored checkpoints."""
        for checkpoint in _rows_of_session(Checkpoint, self.session).order_by(
            "opened_position", "id"
        ):
            yield exported_columns(checkpoint, id=checkpoint.id)

    def facts(self) -> Iterator[dict[str, Any]]:
        """Yield the latest value per name and source."""
        for fact in _iterate(
            _rows_of_session(ObservedFact, self.session).order_by("opened_position", "id")
        ):
            yield exported_columns(fact)

    def artifacts(self) -> Iterator[dict[str, Any]]:
        """Yield its artifacts by hash; `enclosed` if the zip contains the bytes."""
        for artifact in _iterate(
            _rows_of_session(Artifact, self.session).order_by("opened_position", "id")
        ):
            yield exported_columns(
                artifact, id=artifact.id, effect=artifact.effect, enclosed=is_enclosed(artifact)
            )

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield its journal entries with body, salt and commitment; erased bodies are marked."""
        rows = _query_entries(self.session).filter(position__lte=self.cut.position)
        for batch in _iterate_batches(
            rows.select_related("body", "erasure").order_by("position"), "position"
        ):
            for entry in batch:
                yield _entry_to_json(entry)

    def find_last_needed_position(self) -> int:
        """Return the last position that its proofs need: of the cut, or of a later erasure."""
        rows = _query_entries(self.session).filter(
            position__lte=self.cut.position, body__isnull=True, erasure__isnull=False
        )
        rows = rows.select_related("erasure").order_by("position")
        last = self.cut.position
        for batch in _iterate_batches(rows, "position"):
            erasing = proof_document.load_erasing_entries(batch)
            last = max([last, *(entry.position for entry in erasing.values())])
        return last

    def proofs(self, head: TreeHead) -> Iterator[dict[str, Any]]:
        """Yield the proof of each of these entries that `head` covers, then `erased` rows.

        Bodies in which pseudonyms replace names are withheld. An erased row names the entry that
        records the erasure, which is proved too.
        """
        rows = _query_entries(self.session).filter(position__lte=self.cut.position)
        rows = rows.select_related("body", "erasure").order_by("position")
        proved: dict[int, int] = {}
        erased: list[Entry] = []
        for batch in _iterate_batches(rows, "position"):
            replaced = {entry.position for entry in batch if _is_replaced(entry)}
            erased += [entry for entry in batch if is_erased(entry)]
            for row in proof_document.prove_entries(head, batch):
                proved[row["position"]] = row["log_index"]
                withheld = row["position"] in replaced
                yield proof_document.withhold_text(row) if withheld else row
        yield from prove_erasures(head, erased, proved)


def prove_erasures(
    head: TreeHead, erased: list[Entry], proved: dict[int, int]
) -> Iterator[dict[str, Any]]:
    """Yield the proofs of the erasing entries that are not in `proved`, then `erased` rows."""
    erasing = proof_document.load_erasing_entries(erased)
    further = [entry for entry in erasing.values() if entry.position not in proved]
    for row in proof_document.prove_entries(head, further):
        proved[row["position"]] = row["log_index"]
        yield row
    for entry in erased:
        by = erasing.get(entry.position)
        if entry.position in proved and by is not None:
            yield {
                "erased": {
                    "position": entry.position,
                    "log_index": proved[entry.position],
                    "by": proved.get(by.position),  # null: the head does not cover it yet
                    "recorded_by": by.position,
                    "reason": entry.erasure.reason,
                    "erased_at_us": entry.erasure.erased_at_us,
                }
            }


def is_erased(entry: Entry) -> bool:
    """Return whether the body of the entry was erased; needs both related rows loaded."""
    return getattr(entry, "body", None) is None and hasattr(entry, "erasure")


def _is_replaced(entry: Any) -> bool:
    """Return whether the bundle shows pseudonyms in the body instead of names."""
    shown = _entry_to_json(entry)["body"]
    return bool(shown) and "replaced" in shown


def is_enclosed(artifact: Artifact) -> bool:
    """Return whether the artifact's bytes are stored as they were recorded."""
    return stored.has_recorded_content(artifact)


def _entry_to_json(row: Any) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in _COLUMNS} | {
        "id": row.event_id,
        "facts": orjson.loads(row.facts),
    }
    fields["of_session"] = row.session is not None
    fields["commitment"] = bytes(row.body_commit).hex() if row.body_commit is not None else None
    body, erasure = getattr(row, "body", None), getattr(row, "erasure", None)
    if body is None:
        fields["body"] = erasure and {
            "erased": {"reason": erasure.reason, "erased_at_us": erasure.erased_at_us}
        }
        return fields
    fields["body"] = {"text": body.text, "salt": bytes(body.salt).hex()}
    if row.kind in NAME_PATHS:
        value = long_numbers.parse_json(body.text)
        replaced = [".".join(path) for path in NAME_PATHS[row.kind] if _replace_names(value, path)]
        if replaced:  # the text no longer matches its commitment
            fields["body"] = {
                "text": long_numbers.to_json_bytes(value, orjson.OPT_SORT_KEYS).decode(),
                "replaced": replaced,
            }
    return fields


_COLUMNS: Final = (
    "position",
    "source",
    "claimed_source",
    "kind",
    "lane",
    "effect",
    "attempt",
    "subject",
    "actor",
    "lease_epoch",
    "producer_seq",
    "occurred_us",
    "received_us",
)


def _replace_names(value: Any, path: tuple[str, ...]) -> bool:
    """Replace user names at `path` of `value` by pseudonyms; return whether there were any."""
    for name in path[:-1]:
        value = value.get(name) if isinstance(value, dict) else None
    fields = value.get(path[-1]) if isinstance(value, dict) else None
    names = (
        [fields]
        if isinstance(fields, str)
        else [item for item in fields if isinstance(item, str)]
        if fields
        else []
    )
    if not names:
        return False
    people = dict(
        User.objects.filter(username__in=names).values_list("username", "person__pseudonym")
    )
    called = [people.get(item) or f"p_{entries.keyed_digest('name', item)[:16]}" for item in names]
    value[path[-1]] = called[0] if isinstance(fields, str) else called
    return True


def _rows_of_session(model: Any, session: Session) -> "QuerySet[Any]":
    rows: QuerySet[Any] = model.objects.filter(session=session)
    return rows


def _iterate(rows: "QuerySet[Any]") -> Iterable[Any]:
    """Iterate over rows in batches, for lists shorter than effects and entries."""
    return rows.iterator(chunk_size=BATCH_SIZE)


def _iterate_batches(rows: "QuerySet[Any]", key: str = "opened_position") -> Iterator[list[Any]]:
    """Yield rows in lists of at most BATCH_SIZE, one query each, paged by the unique `key`."""
    batch = list(rows[:BATCH_SIZE])
    while batch:
        yield batch
        batch = list(rows.filter(**{f"{key}__gt": getattr(batch[-1], key)})[:BATCH_SIZE])
