"""Data and form token of the page that resolves an effect."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.core import signing
from django.db.models.functions import Substr

from inquiry import bodies
from journal import gists
from journal.models import Entry
from ledger import verdict_words
from ledger.fold import RESOLVED
from ledger.models import Effect
from ledger.verdicts import Verdict
from sessions.models import Membership

_SALT: Final = "gatebook.resolve"
_MAX_AGE_S: Final = 12 * 3600  # as long as a login session
HEARD: Final = 20

# Answer -> its title, its phrase within a sentence, and its consequence.
ANSWERS: Final = {
    "happened": (
        "It happened",
        "it happened",
        "The effect becomes acknowledged with your reference. Agents skip it and do not repeat it.",
    ),
    "not_happened": (
        "It did not happen, replay once",
        "it did not happen",
        "The attempt becomes failed. One retry may be requested. "
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
_SAID: Final = ("found", "outcome", "reason", "answer", "violation", "refused")


@dataclass(frozen=True, slots=True)
class Heard:
    """An entry about an effect after its dispatch.

    A probe, answer, late report or violation.
    """

    entry: Entry
    told: str
    detail: str
    began_us: int | None  # of a probe


def heard(effect: Effect) -> list[Heard]:
    """Return the entries other than plans and dispatches, newest first. One query."""
    entries = Entry.objects.filter(project=effect.project_id, effect=effect.id)
    entries = entries.exclude(kind__in=_NOT_HEARD)
    entries = entries.exclude(kind__startswith="gate.").exclude(kind__startswith="access.")
    rows = entries.annotate(head=Substr("body__text", 1, bodies.SHOWN_BYTES)).order_by("-position")[
        :HEARD
    ]
    return [_heard(entry) for entry in rows]


def _heard(entry: Any) -> Heard:
    facts = gists.parsed(entry.facts)
    content = ", ".join(
        f"{name} {facts[name]}".replace("_", " ")
        for name in _SAID
        if isinstance(facts.get(name), str)
    )
    if facts.get("given_up"):
        content = "the agent stopped waiting for its answer"
    body = gists.parsed(entry.head or "")
    detail = next(
        (
            body[name]
            for name in ("detail", "external_reference")
            if isinstance(body.get(name), str)
        ),
        "",
    )
    began = facts.get("began_us")
    return Heard(entry, content, detail, began if isinstance(began, int) else None)


class Seen(NamedTuple):
    """An effect as a page showed it."""

    effect: str
    version: int
    state: str
    outcome: str
    attempts: int
    verdict: str


def _seen(effect: Effect, verdict: Verdict) -> Seen:
    word = f"{verdict_words.WORDS[verdict.answer][0]} {verdict_words.short(verdict)}"
    return Seen(
        effect.id.hex, effect.version, effect.state, effect.outcome, effect.attempt_count, word
    )


def sign(effect: Effect, verdict: Verdict, membership: Membership) -> str:
    """Return the token for the form of `effect` as the member's page shows it now."""
    return signing.dumps(list(_seen(effect, verdict)), salt=_salt(membership))


def read(token: str, effect: Effect, membership: Membership) -> Seen | None:
    """Return what a form's page showed.

    None if the token is invalid, expired or for another object.
    """
    try:
        snapshot = Seen(*signing.loads(token, salt=_salt(membership), max_age=_MAX_AGE_S))
    except signing.BadSignature:
        return None
    return snapshot if snapshot.effect == effect.id.hex else None


def differences(seen: Seen, effect: Effect, verdict: Verdict) -> list[tuple[str, str, str]]:
    """Return what changed since the page was loaded: (label, as shown, now)."""
    now = _seen(effect, verdict)
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


def _salt(membership: Membership) -> str:
    project: UUID = membership.project_id
    return f"{_SALT}.{membership.user_id}.{project.hex}"
