"""Summary of the session page: five questions with answers and links.

What was planned, what ran, what succeeded, what can be retried, and where the audit trail is.
"""

from dataclasses import dataclass, field
from typing import Final

from django.urls import reverse

from display import urls_of_rows
from pages.sessions.data import EffectCounts
from recovery.resume import ResumeState
from sessions.models import Session

_RETRY: Final = {
    "replay": "may be sent again",
    "probe": "must be probed first",
    "compensate": "must be compensated first",
    "wait": "must wait",
    "ask": "must request approval again",
    "execute": "may run for the first time",
    "escalate": "a person must resolve",
    "skip": "must not be repeated",
}
_NEVER_BEGUN: Final = {
    "execute": "was never started",
    "ask": "was never started",
}  # nor will be, once its session has ended


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    """A question with its answer and links (address, words) to the rows."""

    question: str
    words: str
    links: list[tuple[str, str]] = field(default_factory=list)


def answer_summary_questions(
    session: Session, counts: EffectCounts, resume: ResumeState
) -> list[SummaryAnswer]:
    """Return the five answers. No queries."""
    page = reverse("session", args=[session.id])
    resume_url = reverse("session_resume", args=[session.id])
    states = {word: number for _, word, number in counts.by_state}
    ran = (
        counts.effects
        - states.get("planned", 0)
        - states.get("awaiting approval", 0)
        - states.get("superseded", 0)
    )
    committed = states.get("acknowledged", 0) - counts.errors_acknowledged
    unknown = states.get("unknown", 0) + states.get("dispatched", 0)
    words = _RETRY | (_NEVER_BEGUN if resume.ended else {})
    legal = [f"{number} {words[answer]}" for answer, number in resume.by_verdict]
    return [
        SummaryAnswer(
            "What was planned?",
            f"{_count_words(counts.effects, 'effect')}: {counts.commanded:,} recorded before they "
            "ran,"
            f" {counts.effects - counts.commanded:,} reported afterwards.",
            [(f"{page}#timeline", "timeline")],
        ),
        SummaryAnswer(
            "What ran?",
            f"{_count_words(ran, 'effect')} in {_count_words(counts.attempts, 'attempt')}."
            + (f" {counts.violations:,} violated a rule." if counts.violations else ""),
            [(f"{reverse('session_timeline', args=[session.id])}?view=lanes", "lanes")],
        ),
        SummaryAnswer(
            "What succeeded?",
            f"{committed:,} succeeded · {counts.errors:,} failed · {unknown:,} unknown.",
            [
                (f"{page}?state=acknowledged#timeline", "acknowledged"),
                (f"{page}?state=unknown#timeline", "unknown"),
            ],
        ),
        SummaryAnswer(
            "What can be retried?",
            f"Of {_count_words(len(resume.open), 'open effect')}, {', '.join(legal)}."
            if legal
            else "Nothing: no effect is open.",
            [(f"{resume_url}#verdicts", "verdicts")],
        ),
        SummaryAnswer(
            "What is the audit trail?",
            "Every journal entry of these effects, by position;"
            f" {_count_words(counts.redactions, 'secret')} replaced before storage.",
            [(urls_of_rows.build_search_url(f"session:{session}"), "audit")],
        ),
    ]


def _count_words(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
