"""What the page of an effect that only people can settle shows, and what of it is signed into the form."""

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
_MAX_AGE_S: Final = 12 * 3600  # as long as a sign-in lasts
HEARD: Final = 20

# The answer -> what it is called, what it says in a sentence of somebody, and what it does.
ANSWERS: Final = {
    "happened": (
        "It happened",
        "it happened",
        "It becomes acknowledged with your reference. Nobody does it again; the session skips it and goes on.",
    ),
    "not_happened": (
        "It did not happen, replay once",
        "it did not happen",
        "The attempt becomes failed. Exactly one more may be asked for, under leave of its own: where a policy holds "
        "it, others are asked, and you cannot approve it.",
    ),
    "compensate": (
        "Compensate",
        "compensate it",
        "An agent is told to plan what undoes it, whether or not it happened. That is an effect of its own, and is "
        "held like any other.",
    ),
    "abandoned": (
        "Abandon",
        "abandon it",
        "It becomes superseded. Whether it happened stays unknown for good; nobody does it again or undoes it.",
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
# What of an entry's facts says what was heard.
_SAID: Final = ("found", "outcome", "reason", "answer", "violation", "refused")


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that was told of an effect after its dispatch: a look, an answer, late evidence, a breach."""

    entry: Entry
    told: str
    detail: str
    began_us: int | None  # of a look


def heard(effect: Effect) -> list[Heard]:
    """What was told of it besides plans and dispatches, the newest first. One query."""
    entries = Entry.objects.filter(project=effect.project_id, effect=effect.id)
    entries = entries.exclude(kind__in=_NOT_HEARD)
    entries = entries.exclude(kind__startswith="gate.").exclude(kind__startswith="access.")
    rows = entries.annotate(head=Substr("body__text", 1, bodies.SHOWN_BYTES)).order_by("-position")[:HEARD]
    return [_heard(one) for one in rows]


def _heard(entry: Any) -> Heard:
    facts = gists.parsed(entry.facts)
    told = ", ".join(f"{name} {facts[name]}".replace("_", " ") for name in _SAID if isinstance(facts.get(name), str))
    if facts.get("given_up"):
        told = "nobody waits for its answer any more"
    body = gists.parsed(entry.head or "")
    detail = next((body[name] for name in ("detail", "external_reference") if isinstance(body.get(name), str)), "")
    began = facts.get("began_us")
    return Heard(entry, told, detail, began if isinstance(began, int) else None)


class Seen(NamedTuple):
    """An effect as a page showed it."""

    effect: str
    version: int
    state: str
    outcome: str
    attempts: int
    verdict: str


def _seen(effect: Effect, found: Verdict) -> Seen:
    word = f"{verdict_words.WORDS[found.answer][0]} {verdict_words.short(found)}"
    return Seen(effect.id.hex, effect.version, effect.state, effect.outcome, effect.attempt_count, word)


def sign(effect: Effect, found: Verdict, membership: Membership) -> str:
    """The token for the form of `effect` as `membership`'s page shows it now."""
    return signing.dumps(list(_seen(effect, found)), salt=_salt(membership))


def read(token: str, effect: Effect, membership: Membership) -> Seen | None:
    """What a form says its page showed; None when the token is not ours, not this person's, too old, or another's."""
    try:
        seen = Seen(*signing.loads(token, salt=_salt(membership), max_age=_MAX_AGE_S))
    except signing.BadSignature:
        return None
    return seen if seen.effect == effect.id.hex else None


def differences(seen: Seen, effect: Effect, found: Verdict) -> list[tuple[str, str, str]]:
    """What is new since the page was made: (what, as shown, now)."""
    now = _seen(effect, found)
    labels = {"state": "State", "outcome": "Outcome", "attempts": "Attempts", "verdict": "Verdict"}
    new = [
        (label, str(getattr(seen, name) or "none"), str(getattr(now, name) or "none"))
        for name, label in labels.items()
        if getattr(seen, name) != getattr(now, name)
    ]
    return [*new, ("Version", str(seen.version), str(now.version))] if seen.version != now.version else new


def _salt(membership: Membership) -> str:
    project: UUID = membership.project_id
    return f"{_SALT}.{membership.user_id}.{project.hex}"
