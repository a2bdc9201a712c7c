"""Words of the pages about resuming."""

from typing import Final

from django import template

from inquiry.resume import left
from ledger import verdicts

register = template.Library()

_VERBS: Final = {
    "execute": "may run",
    "wait": "must wait",
    "ask": "must ask for leave again",
    "skip": "to be left alone",
    "replay": "may be sent again",
    "probe": "to be looked up",
    "compensate": "to be undone",
    "escalate": "for a person to resolve",
}


register.filter("left", left)


@register.filter
def verdict_verb(answer: str) -> str:
    """What an answer of the verdict table is called within a sentence: "2 to be looked up"."""
    return _VERBS[answer]


@register.filter
def meaning(verdict: verdicts.Verdict) -> str:
    """What a verdict means, beside the effect that it is of: its sentence without the handle."""
    words = verdicts.sentence(verdict, "").removeprefix(": ").strip()
    return words[:1].upper() + words[1:]
