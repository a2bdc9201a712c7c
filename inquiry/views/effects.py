"""The effect page, the raw bodies of its facts, and stored artifacts."""

import re
from typing import Any, Final
from uuid import UUID

from django.http import FileResponse, Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from inquiry import effect_page, incident_page, life, looks, sentences
from inquiry.bundles import history
from inquiry.handles import as_position
from inquiry.keyset import MAX_POSITION
from inquiry.views import asof
from inquiry.views.place import place_of
from journal.clock import now_us
from ledger import breaches, holds, resolutions
from sessions import artifacts
from sessions.access import MemberRequest, may, member
from sessions.standing import standing_of

HEADED: Final = breaches.WORDS["executed_without_leave"]  # the statement of the page begins with it


@require_safe
@member
def effect(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Everything that is known of one effect, beginning with the sentence that says it."""
    found = effect_of(request, effect)
    if "asof" in request.GET:
        _seen(request, "effect", found.opened_position, found)
        return asof.effect(request, found)
    now = now_us()
    place = place_of(request.GET, (), ("fact",))
    tried, times = effect_page.attempts(found)
    undoing, children = effect_page.related(found)
    gates, found_of_it = effect_page.gates(found), breaches.of(found)
    case, verdict = effect_page.judged(found, tried, now)
    asks = not resolutions.standing(case, verdict, found.deadline_us, now).refused
    context = {
        "effect": found,
        "verdict": verdict,
        "may_resolve": asks and may(request.membership, "operator") and not found.imported,
        "said": resolutions.told(found),
        "compared": effect_page.compared(found, tried, gates, found_of_it),
        "known": sentences.known(found, tried, times, now),
        "life": life.stages(found, tried, now),
        "attempts": tried,
        "attempts_in_all": times,
        "tool": effect_page.tool(found),
        "exchange": effect_page.exchange(found, tried),
        "facts": effect_page.facts(found, place.window.before, as_position(request.GET.get("fact", ""))),
        "undoing": undoing,
        "children": children,
        "elsewhere": effect_page.elsewhere(found),
        "artifacts": effect_page.artifacts(found),
        "gates": gates,
        "violates": bool(found_of_it),
        "breaches": [one for one in found_of_it if found.leave != "bypassed" or one != HEADED],
        "stop": holds.stopping(found.project_id, found.session_id, found.agent_id, found.tool, found.id)
        if standing_of(request).has_stops
        else None,
        "is_over": found.state in ("acknowledged", "compensated", "superseded"),
        "may_rule": may(request.membership, "reviewer") and not found.imported,
        "bundle": history.of_session(found.session) if found.imported else None,
        "may_gather": may(request.membership, "reviewer"),
        "incidents": incident_page.of(found, "effect"),
        "there": history.there(found) if found.imported else "",
        "place": place,
        "now": now,
    }
    page = render(request, "inquiry/effect.html", context)
    _seen(request, "effect", found.opened_position, found)
    return page


@require_safe
@member
def raw_fact(request: MemberRequest, effect: UUID, position: int) -> HttpResponse:
    """The stored text of one fact, byte for byte, as a download that no browser will run."""
    found = effect_of(request, effect)
    stored = effect_page.stored_bodies(found, position) if position <= MAX_POSITION else []
    if not stored:
        raise Http404
    if stored[0] is None:
        return HttpResponse("This body was erased.\n", status=410, content_type="text/plain; charset=utf-8")
    _seen(request, "body", position, found)
    response = HttpResponse(stored[0].encode("utf-8", "surrogatepass"), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{found}-fact-{position}.txt"'
    return response


@require_safe
@member
def artifact(request: MemberRequest, artifact: UUID) -> HttpResponseBase:
    """The stored bytes of an artifact as a download; not found when only its hash is known."""
    found = request.membership.project.artifacts.filter(id=artifact, stored_at_us__isnull=False).first()
    if found is None:
        raise Http404
    try:
        file = artifacts.path(found.project_id, found.sha256).open("rb")
    except OSError as error:
        raise Http404 from error
    of = (found.session_id, found.effect, found.id)
    looks.viewed(found.project_id, looks.actor_of(request), "artifact", found.opened_position, of)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", found.name).strip("._")[-80:]
    response = FileResponse(file, as_attachment=True, filename=f"{found}-{name}" if name else str(found))
    response["Content-Type"] = "application/octet-stream"
    return response


def _seen(request: MemberRequest, what: str, number: int, found: Any) -> None:
    """Put on record that a person was shown what an agent sent."""
    of = (found.session_id, found.id, found.id)
    looks.viewed(found.project_id, looks.actor_of(request), what, number, of)


def effect_of(request: MemberRequest, effect_id: UUID) -> Any:
    """The effect of the current project. Raises Http404."""
    found = effect_page.effect(request.membership.project, effect_id)
    if found is None:
        raise Http404
    return found
