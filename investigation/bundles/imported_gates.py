"""The one writer of ImportedBundle and ImportedGate: store and queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.labels import END_REASON_LABELS, STEP_UP_LABELS, VOTE_ANSWER_LABELS, describe_needs
from approvals.models import Gate
from approvals.policies.engine import Requirement
from investigation.models import ImportedBundle, ImportedGate
from journal.models import Body, Entry
from journal.summaries import parse_body
from ledger.models import Effect
from sessions.models import Session


def find_import(sha256: str) -> ImportedBundle | None:
    """Return the earlier import of the same file, if any."""
    return ImportedBundle.objects.select_related("project", "session").filter(sha256=sha256).first()


def store_import(bundle: ImportedBundle, gates: Sequence[ImportedGate]) -> None:
    """Store an imported bundle and its gates. The session and its effects must exist."""
    bundle.save(force_insert=True)
    ImportedGate.objects.bulk_create(gates, batch_size=500)


def set_import_position(bundle: ImportedBundle, position: int) -> None:
    """Set the position of the import's entry, which has the digests of what was stored."""
    bundle.position = position
    bundle.save(update_fields=["position"])


def bundle_of_session(session: Session) -> ImportedBundle | None:
    """Return the bundle of an imported session; None for other sessions."""
    return ImportedBundle.objects.filter(session=session).first()


def original_handle(effect: Effect) -> str:
    """Return the handle of an imported effect in its original journal."""
    facts = (
        Entry.objects.filter(position=effect.opened_position)
        .values_list("facts", flat=True)
        .first()
    )
    return f"e_{parse_body(facts or '{}')['origin']['position']}"


def list_imported_exemptions(bundle: ImportedBundle) -> list[dict[str, Any]]:
    """List the exemptions that the session used, each with `reason` (None: erased)."""
    rows: list[dict[str, Any]] = bundle.document["exemptions"]
    at = [row["opened_position"] for row in rows]
    bodies = Body.objects.filter(entry_id__in=at, entry__project=bundle.project_id).values_list(
        "entry_id", "text"
    )
    reasons = {position: parse_body(text).get("reason") for position, text in bodies}
    return [row | {"reason": reasons.get(row["opened_position"])} for row in rows]


def list_imported_gates(effect: Effect) -> list[Gate]:
    """List the gates of an imported effect, latest first, as unsaved rows for display."""
    gates = ImportedGate.objects.filter(effect=effect).order_by("-opened_position")
    return [to_unsaved_gate(row) for row in gates]


def to_unsaved_gate(row: ImportedGate) -> Gate:
    """Convert an imported gate to an unsaved Gate for display. It cannot be voted on or used."""
    columns = {name: value for name, value in row.document.items() if name in _COLUMNS}
    return Gate(id=row.id, project_id=row.project_id, effect_id=row.effect_id, **columns)


_COLUMNS = frozenset(
    {field.attname for field in Gate._meta.concrete_fields}
    - {
        "id",
        "project_id",
        "effect_id",
        "session_id",
        "agent_id",
        "requester_id",
        "session_owner_id",
        "agent_owner_id",
    }
    - {"policy_set_id"}
)


@dataclass(frozen=True, slots=True)
class ImportedVote:
    """An imported vote. `who` is a pseudonym; `reason` is None once erased."""

    who: str
    answer: str
    reason: str | None
    document: Mapping[str, Any]
    proof: str


@dataclass(frozen=True, slots=True)
class ImportedGateDetails:
    """An imported gate with all that its page shows."""

    gate: Gate
    needs: str
    ended: str
    rule: str
    parties: list[tuple[str, str]]
    votes: list[ImportedVote]


def load_gate_details(row: ImportedGate) -> ImportedGateDetails:
    """Build the page data of an imported gate. One query, for the reasons of votes."""
    fields = row.document
    votes = fields["votes"]
    bodies = dict(
        Body.objects.filter(
            entry_id__in=[vote["position"] for vote in votes], entry__project=row.project_id
        ).values_list("entry_id", "text")
    )
    parties = [(fields[name], words) for name, words in _PARTIES if fields[name]]
    return ImportedGateDetails(
        gate=to_unsaved_gate(row),
        needs=describe_needs(
            Requirement.of(fields["requirement"]), [words for _, words in parties]
        ),
        ended=END_REASON_LABELS.get(fields["reason"], ""),
        rule=f"{fields['policy_set'] or 'no policy set'}/{fields['rule'] or 'no rule'}",
        parties=parties,
        votes=[
            ImportedVote(
                who=vote["actor"],
                answer=VOTE_ANSWER_LABELS[vote["answer"]][0],
                reason=parse_body(bodies[vote["position"]]).get("reason")
                if vote["position"] in bodies
                else None,
                document=vote,
                proof=STEP_UP_LABELS[vote["step_up"]],
            )
            for vote in votes
        ],
    )


_PARTIES = (
    ("requester", "requester"),
    ("session_owner", "owner of the session"),
    ("agent_owner", "owner of the agent"),
)


def load_imported_gate(project: UUID, identity: UUID) -> ImportedGate | None:
    """Load an imported gate with its effect and session."""
    row = ImportedGate.objects.filter(project=project, id=identity)
    return row.select_related("effect", "effect__session", "effect__agent").first()
