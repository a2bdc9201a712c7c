"""Data and form of the page that resolves an effect."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db.models.functions import Substr

from accounts.models import Membership
from approvals.confirmation import AnswerForm
from display import entry_bodies
from journal import summaries
from journal.models import Entry
from ledger import resolutions
from ledger.fold.effect_state import RESOLVED
from ledger.models import Effect
from ledger.verdicts import labels as verdicts_labels
from ledger.verdicts.table import Verdict

RESOLUTION_FORM: Final = AnswerForm(
    "resolve",
    ("answer", "rationale", "reference", "evidence", "insists", "seen"),
    resolutions.MAX_RATIONALE + 1,
)
MAX_EVIDENCE: Final = 20

# Answer -> its title, its phrase within a sentence, and its consequence.
ANSWERS: Final = {
    "happened": (
        "It happened",
        "it happened",
        "The effect becomes acknowledged with your reference. Agents skip it and do not repeat it.",
    ),
    "not_happened": (
        "It did not happen, allow one more attempt",
        "it did not happen",
        "The attempt becomes failed. The agent may request one more attempt. "
        "If policy requires approval, someone else must approve it.",
    ),
    "compensate": (
        "Compensate",
        "compensate it",
        "An agent is asked to plan a compensation, whether or not it happened. "
        "The compensation is an effect of its own and may need approval.",
    ),
    "abandoned": (
        "Abandon",
        "abandon it",
        "The effect becomes superseded. Its outcome stays unknown. It is not retried or undone.",
    ),
}
_NOT_HEARD: Final = (
    "effect.named",
    "effect.planned",
    "effect.dispatched",
    "effect.granted",
    "effect.withheld",
    "effect.replanned",
    RESOLVED,
)
# Facts of an entry that describe its content.
_SAID: Final = ("result", "outcome", "reason", "answer", "violation", "refused")


@dataclass(frozen=True, slots=True)
class LaterEvidence:
    """An entry after an effect's dispatch: probe, answer, late report or violation."""

    entry: Entry
    sentence_of_doubt: str
    detail: str
    began_us: int | None  # of a probe


def load_later_evidence(effect: Effect) -> list[LaterEvidence]:
    """Return the entries other than plans and dispatches, newest first. One query."""
    entries = Entry.objects.filter(project=effect.project_id, effect=effect.id)
    entries = entries.exclude(kind__in=_NOT_HEARD)
    entries = entries.exclude(kind__startswith="gate.").exclude(kind__startswith="access.")
    rows = entries.annotate(head=Substr("body__text", 1, entry_bodies.SHOWN_BYTES)).order_by(
        "-position"
    )[:MAX_EVIDENCE]
    return [_later_evidence(entry) for entry in rows]


def _later_evidence(entry: Any) -> LaterEvidence:
    facts = summaries.parse_body(entry.facts)
    content = ", ".join(
        f"{name} {facts[name]}".replace("_", " ")
        for name in _SAID
        if isinstance(facts.get(name), str)
    )
    if facts.get("given_up"):
        content = "the agent stopped waiting for its answer"
    body = summaries.parse_body(entry.head or "")
    detail = next(
        (
            body[name]
            for name in ("detail", "external_reference")
            if isinstance(body.get(name), str)
        ),
        "",
    )
    began = facts.get("began_us")
    return LaterEvidence(entry, content, detail, began if isinstance(began, int) else None)


class EffectSnapshot(NamedTuple):
    """An effect as a page showed it."""

    effect: str
    version: int
    state: str
    outcome: str
    attempts: int
    verdict: str


def _take_snapshot(effect: Effect, verdict: Verdict) -> EffectSnapshot:
    answer = verdicts_labels.ANSWER_LABELS[verdict.answer][0]
    word = f"{answer} {verdicts_labels.short_reason(verdict)}"
    return EffectSnapshot(
        effect.id.hex, effect.version, effect.state, effect.outcome, effect.attempt_count, word
    )


def sign_snapshot(effect: Effect, verdict: Verdict, membership: Membership) -> str:
    """Return the token for the form of `effect` as the member's page shows it now."""
    return RESOLUTION_FORM.sign_page(_take_snapshot(effect, verdict), membership)


def verify_snapshot(token: str, effect: Effect, membership: Membership) -> EffectSnapshot | None:
    """Return what the form showed; None if the token is bad, expired or another's."""
    values = RESOLUTION_FORM.verify_page(token, membership)
    if values is None:
        return None
    snapshot = EffectSnapshot(*values)
    return snapshot if snapshot.effect == effect.id.hex else None


def snapshot_differences(
    seen: EffectSnapshot, effect: Effect, verdict: Verdict
) -> list[tuple[str, str, str]]:
    """Return what changed since the page was loaded: (label, as shown, now)."""
    now = _take_snapshot(effect, verdict)
    labels = {"state": "State", "outcome": "Outcome", "attempts": "Attempts", "verdict": "Verdict"}
    changes = [
        (label, str(getattr(seen, name) or "none"), str(getattr(now, name) or "none"))
        for name, label in labels.items()
        if getattr(seen, name) != getattr(now, name)
    ]
    return (
        [*changes, ("Version", str(seen.version), str(now.version))]
        if seen.version != now.version
        else changes
    )
