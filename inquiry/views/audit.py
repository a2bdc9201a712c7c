"""The search of effects by fields, and the box that takes any identity."""

from dataclasses import dataclass
from typing import Final

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from inquiry import jump, patience, search
from inquiry.fields import FIELDS, TIMES
from inquiry.views.place import Place
from journal.clock import now_us
from sessions.access import MemberRequest, member

LONGEST: Final = 300  # characters of an identity
# The fields that the form shows at once; the others stand behind "more fields" until one of them is used.
FIRST: Final = ("tool", "outcome", "agent", "session", "since", "until")
WHEN_HELP: Final = "24h, 7d, 2026-11-20"


@dataclass(frozen=True, slots=True)
class Input:
    """A field as the form shows it."""

    name: str
    label: str
    help: str
    choices: tuple[tuple[str, str], ...]
    values: tuple[str, ...]
    error: str

    @property
    def value(self) -> str:
        """What stands in it."""
        return self.values[0] if self.values else ""


@require_safe
@member
def audit(request: MemberRequest) -> HttpResponse:
    """Effects by fields, newest first. The query string is the whole question."""
    stopped, found = None, search.Found()
    asked = search.read(dict(request.GET.lists()), request.membership.project, now_us())
    try:
        with patience.limit(request.user.pk):
            found = found if asked.errors else search.find(asked)
    except patience.Overran as stop:
        stopped = stop
    inputs = {name: _input(name, asked) for name in (*FIELDS, *TIMES)}
    rest = [one for name, one in inputs.items() if name not in FIRST and name != "state"]
    context = {
        "search": asked,
        "found": found,
        "states": inputs["state"],
        "first": [inputs[name] for name in FIRST],
        "rest": rest,
        "rest_used": any(one.values or one.error for one in rest),
        "place": Place(filters=asked.query()),
    }
    if stopped:
        return patience.overran(request, stopped, "inquiry/audit.html", context)
    return render(request, "inquiry/audit.html", context, status=400 if asked.errors else 200)


@require_safe
@member
@patience.patient
def go(request: MemberRequest) -> HttpResponse:
    """Go to what an identity names: straight there when it is one thing, else a page of what it may be."""
    text = request.GET.get("id", "").strip()
    if not text or len(text) > LONGEST or "\0" in text:
        return render(request, "inquiry/go.html", {"text": text[:LONGEST], "unfit": bool(text)})
    found = jump.jump(request.membership.project, text)
    if len(found.hits) == 1:
        return redirect(found.hits[0].url)
    return render(request, "inquiry/go.html", {"text": text, "jump": found})


def _input(name: str, asked: search.Search) -> Input:
    values, error = tuple(asked.values.get(name, ())), asked.errors.get(name, "")
    if name in TIMES:
        return Input(name, TIMES[name], WHEN_HELP, (), values, error)
    known = FIELDS[name]
    return Input(name, known.label, known.help, tuple(known.choices), values, error)
