"""The one writer of ImportedBundle and ImportedGate: what a bundle brought, and what pages show of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.models import Gate
from approvals.requirement import Requirement
from approvals.words import ANSWERS, REASONS, STEP_UPS, needs
from inquiry.models_bundle import ImportedBundle, ImportedGate
from journal.gists import parsed
from journal.models import Body, Entry
from ledger.models import Effect
from sessions.models import Session


def known(sha256: str) -> ImportedBundle | None:
    """The import of that very file, if there was one."""
    return ImportedBundle.objects.select_related("project", "session").filter(sha256=sha256).first()


def keep(bundle: ImportedBundle, gates: Sequence[ImportedGate]) -> None:
    """Store what the tables of other rooms have no place for. Expects the session and its effects."""
    bundle.save(force_insert=True)
    ImportedGate.objects.bulk_create(gates, batch_size=500)


def of_session(session: Session) -> ImportedBundle | None:
    """The bundle that brought `session`; None for a session of this book."""
    return ImportedBundle.objects.filter(session=session).first()


def there(effect: Effect) -> str:
    """What an imported effect is called in the book of origin, as the bundle's own summary calls it."""
    facts = (
        Entry.objects.filter(position=effect.opened_position)
        .values_list("facts", flat=True)
        .first()
    )
    return f"e_{parsed(facts or '{}')['origin']['position']}"


def exemptions_of(bundle: ImportedBundle) -> list[dict[str, Any]]:
    """The exemptions that the session used, each with its `reason`, None where it was erased."""
    told: list[dict[str, Any]] = bundle.told["exemptions"]
    at = [one["opened_position"] for one in told]
    bodies = Body.objects.filter(entry_id__in=at, entry__project=bundle.project_id).values_list(
        "entry_id", "text"
    )
    reasons = {position: parsed(text).get("reason") for position, text in bodies}
    return [one | {"reason": reasons.get(one["opened_position"])} for one in told]


def gates_of(effect: Effect) -> list[Gate]:
    """The gates of an imported effect, the latest first, as rows that are stored nowhere: for showing alone."""
    found = ImportedGate.objects.filter(effect=effect).order_by("-opened_position")
    return [as_gate(one) for one in found]


def as_gate(one: ImportedGate) -> Gate:
    """A gate of another book in the shape of this one's. No vote, no ruling and no leave can come of it."""
    columns = {name: value for name, value in one.told.items() if name in _COLUMNS}
    return Gate(id=one.id, project_id=one.project_id, effect_id=one.effect_id, **columns)


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
class Vote:
    """What somebody answered there. `who` is their pseudonym; `reason` is None where it was erased."""

    who: str
    answer: str
    reason: str | None
    told: Mapping[str, Any]
    proof: str


@dataclass(frozen=True, slots=True)
class Told:
    """A gate of another book with all that a page says of it."""

    gate: Gate
    needs: str
    ended: str
    rule: str
    parties: list[tuple[str, str]]
    votes: list[Vote]


def told_of(one: ImportedGate) -> Told:
    """Everything of a gate, in one query for what voters wrote."""
    told = one.told
    votes = told["votes"]
    bodies = dict(
        Body.objects.filter(
            entry_id__in=[vote["position"] for vote in votes], entry__project=one.project_id
        ).values_list("entry_id", "text")
    )
    parties = [(told[name], words) for name, words in _PARTIES if told[name]]
    return Told(
        gate=as_gate(one),
        needs=needs(Requirement.of(told["requirement"]), [words for _, words in parties]),
        ended=REASONS.get(told["reason"], ""),
        rule=f"{told['policy_set'] or 'no policy set'}/{told['rule'] or 'no rule'}",
        parties=parties,
        votes=[
            Vote(
                who=vote["actor"],
                answer=ANSWERS[vote["answer"]][0],
                reason=parsed(bodies[vote["position"]]).get("reason")
                if vote["position"] in bodies
                else None,
                told=vote,
                proof=STEP_UPS[vote["step_up"]],
            )
            for vote in votes
        ],
    )


_PARTIES = (
    ("requester", "on whose behalf it was asked"),
    ("session_owner", "owner of the session"),
    ("agent_owner", "owner of the agent"),
)


def gate(project: UUID, identity: UUID) -> ImportedGate | None:
    """The imported gate of that id, with its effect and session."""
    found = ImportedGate.objects.filter(project=project, id=identity)
    return found.select_related("effect", "effect__session", "effect__agent").first()
