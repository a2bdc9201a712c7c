"""Effect page, raw bodies of its journal entries, and stored artifacts."""

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

# the headline already states this violation
HEADED: Final = breaches.WORDS["executed_without_leave"]


@require_safe
@member
def effect(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Show everything known about one effect, starting with its headline sentence."""
    row = effect_of(request, effect)
    if "asof" in request.GET:
        _seen(request, "effect", row.opened_position, row)
        return asof.effect(request, row)
    now = now_us()
    place = place_of(request.GET, (), ("fact",))
    attempts, attempt_total = effect_page.attempts(row)
    compensations, children = effect_page.related(row)
    gates, violations = effect_page.gates(row), breaches.of(row)
    case, verdict = effect_page.judged(row, attempts, now)
    people_asked = not resolutions.standing(case, verdict, row.deadline_us, now).refused
    context = {
        "effect": row,
        "verdict": verdict,
        "may_resolve": people_asked and may(request.membership, "operator") and not row.imported,
        "said": resolutions.told(row),
        "compared": effect_page.compared(row, attempts, gates, violations),
        "known": sentences.known(row, attempts, attempt_total, now),
        "life": life.stages(row, attempts, now),
        "attempts": attempts,
        "attempts_in_all": attempt_total,
        "tool": effect_page.tool(row),
        "exchange": effect_page.exchange(row, attempts),
        "facts": effect_page.facts(
            row, place.window.before, as_position(request.GET.get("fact", ""))
        ),
        "undoing": compensations,
        "children": children,
        "elsewhere": effect_page.elsewhere(row),
        "artifacts": effect_page.artifacts(row),
        "gates": gates,
        "violates": bool(violations),
        "breaches": [words for words in violations if row.leave != "bypassed" or words != HEADED],
        "stop": holds.stopping(row.project_id, row.session_id, row.agent_id, row.tool, row.id)
        if standing_of(request).has_stops
        else None,
        "is_over": row.state in ("acknowledged", "compensated", "superseded"),
        "may_rule": may(request.membership, "reviewer") and not row.imported,
        "bundle": history.of_session(row.session) if row.imported else None,
        "may_gather": may(request.membership, "reviewer"),
        "incidents": incident_page.of(row, "effect"),
        "there": history.there(row) if row.imported else "",
        "place": place,
        "now": now,
    }
    page = render(request, "inquiry/effect.html", context)
    _seen(request, "effect", row.opened_position, row)
    return page


@require_safe
@member
def raw_fact(request: MemberRequest, effect: UUID, position: int) -> HttpResponse:
    """Return the stored text of one entry, byte for byte, as a plain-text download."""
    row = effect_of(request, effect)
    stored = effect_page.stored_bodies(row, position) if position <= MAX_POSITION else []
    if not stored:
        raise Http404
    if stored[0] is None:
        return HttpResponse(
            "This body was erased.\n", status=410, content_type="text/plain; charset=utf-8"
        )
    _seen(request, "body", position, row)
    response = HttpResponse(
        stored[0].encode("utf-8", "surrogatepass"), content_type="text/plain; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="{row}-fact-{position}.txt"'
    return response


@require_safe
@member
def artifact(request: MemberRequest, artifact: UUID) -> HttpResponseBase:
    """Return the stored bytes of an artifact as a download.

    404 when only its hash is stored.
    """
    row = request.membership.project.artifacts.filter(
        id=artifact, stored_at_us__isnull=False
    ).first()
    if row is None:
        raise Http404
    try:
        file = artifacts.path(row.project_id, row.sha256).open("rb")
    except OSError as error:
        raise Http404 from error
    of = (row.session_id, row.effect, row.id)
    looks.viewed(row.project_id, looks.actor_of(request), "artifact", row.opened_position, of)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", row.name).strip("._")[-80:]
    response = FileResponse(
        file, as_attachment=True, filename=f"{row}-{name}" if name else str(row)
    )
    response["Content-Type"] = "application/octet-stream"
    return response


def _seen(request: MemberRequest, what: str, number: int, row: Any) -> None:
    """Record in the journal that a person was shown data from an agent."""
    of = (row.session_id, row.id, row.id)
    looks.viewed(row.project_id, looks.actor_of(request), what, number, of)


def effect_of(request: MemberRequest, effect_id: UUID) -> Any:
    """Load an effect of the current project. Raises Http404."""
    row = effect_page.effect(request.membership.project, effect_id)
    if row is None:
        raise Http404
    return row
