"""Template filters of the pages about resuming."""

from typing import Final

from django import template

from ledger.verdicts import table
from recovery.resume import open_sentence

register = template.Library()

_VERBS: Final = {
    "execute": "may run",
    "wait": "must wait",
    "ask": "must request approval again",
    "skip": "already done: skip",
    "replay": "may be sent again",
    "probe": "to be probed",
    "compensate": "to be compensated",
    "escalate": "for a person to resolve",
}


register.filter("left", open_sentence)


@register.filter
def verdict_verb(answer: str) -> str:
    """Return a verdict as a phrase within a sentence: "2 to be probed"."""
    return _VERBS[answer]


@register.filter
def meaning(verdict: table.Verdict) -> str:
    """Return the sentence of a verdict without the effect's handle."""
    text = table.describe_verdict(verdict, "").removeprefix(": ").strip()
    return text[:1].upper() + text[1:]
