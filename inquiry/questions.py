"""The five questions that one session artifact alone cannot answer after a crash (the paper's Proposition 1), in order.

What was planned, what ran, which effects committed, which retry is legal, what can be audited: each answered from rows,
beside a link to them.
"""

from dataclasses import dataclass, field
from typing import Final

from django.urls import reverse

from inquiry import links
from inquiry.resume import Resume
from inquiry.session_page import Counts
from sessions.models import Session

_RETRY: Final = {
    "replay": "may be sent again",
    "probe": "must be looked up first",
    "compensate": "must be undone first",
    "wait": "must wait",
    "ask": "must ask for leave again",
    "execute": "may run for the first time",
    "escalate": "only a person can say",
    "skip": "must not be repeated",
}
_NEVER_BEGUN: Final = {
    "execute": "was never begun",
    "ask": "was never begun",
}  # nor will be, once its session has ended


@dataclass(frozen=True, slots=True)
class Answer:
    """A question with its answer in words, and links (address, words) to the rows that say so."""

    question: str
    words: str
    links: list[tuple[str, str]] = field(default_factory=list)


def answers(session: Session, counts: Counts, resume: Resume) -> list[Answer]:
    """The five answers. Asks nothing of the database."""
    page = reverse("session", args=[session.id])
    told = reverse("session_resume", args=[session.id])
    states = {word: number for _, word, number in counts.by_state}
    ran = counts.effects - states.get("planned", 0) - states.get("awaiting approval", 0) - states.get("superseded", 0)
    committed = states.get("acknowledged", 0) - counts.errors_acknowledged
    unknown = states.get("unknown", 0) + states.get("dispatched", 0)
    words = _RETRY | (_NEVER_BEGUN if resume.ended else {})
    legal = [f"{number} {words[answer]}" for answer, number in resume.by_verdict]
    return [
        Answer(
            "What was planned?",
            f"{_number(counts.effects, 'effect')}: {counts.commanded:,} written down before they happened,"
            f" {counts.effects - counts.commanded:,} reported after.",
            [(f"{page}#timeline", "timeline")],
        ),
        Answer(
            "What ran?",
            f"{_number(ran, 'effect')} in {_number(counts.attempts, 'attempt')}."
            + (f" {counts.violations:,} against a rule." if counts.violations else ""),
            [(f"{reverse('session_timeline', args=[session.id])}?view=lanes", "lanes")],
        ),
        Answer(
            "Which effects committed?",
            f"{committed:,} went well; {counts.errors:,} ended in an error; of {unknown:,} nobody has said.",
            [(f"{page}?state=acknowledged#timeline", "acknowledged"), (f"{page}?state=unknown#timeline", "unknown")],
        ),
        Answer(
            "Which retry is legal?",
            f"Of {_number(len(resume.open), 'open effect')}, {', '.join(legal)}."
            if legal
            else "Nothing is open; nothing may be repeated.",
            [(f"{told}#verdicts", "verdicts")],
        ),
        Answer(
            "What can be audited?",
            f"Every fact of these effects, by its position in the journal; {_number(counts.redactions, 'secret')}"
            " replaced before storage.",
            [(links.search(f"session:{session}"), "audit")],
        ),
    ]


def _number(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
