"""Words of the pages about resuming."""

from typing import Final

from django import template

from inquiry.resume import left

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
