"""Alerts of a saved query: what its page says of them, and the form that turns them on or off. Its owner's alone."""

from typing import Any
from uuid import UUID

import orjson
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from inquiry import alert_notices, alerting, alerts, handles, saved
from inquiry.models_alerts import Alert
from inquiry.models_saved import SavedQuery
from journal import again
from journal.models import Entry
from sessions.access import MemberRequest, member
from sessions.refused import RefusedError


@require_POST
@member
def switch_alerts(request: MemberRequest, saved_query: UUID) -> HttpResponse:
    """Turn the alerts of one's own query on or off, and go back to its page."""
    found = saved.one(request.membership, saved_query)
    if found is None or found.owner_id != request.user.pk:
        raise Http404
    try:
        messages.success(request, _act(request, found))
    except RefusedError as refusal:
        messages.error(request, str(refusal))
    return redirect("saved_query", found.pk)


def _act(request: MemberRequest, found: SavedQuery) -> str:
    if request.POST.get("do") != "on":
        off = again.durably(lambda: alerts.turn_off(found, request.user))
        return "Its alerts are off." if off else "Its alerts were off already."
    wanted = {
        one
        for text in request.POST.getlist("channel")
        if (one := handles.as_uuid(text)) is not None
    }
    start = alerting.start(found)
    again.durably(lambda: alerts.turn_on(found, request.user, start, wanted))
    return "Its alerts are on: what matches from now on is told, once."


def shown(found: SavedQuery) -> dict[str, Any]:
    """What the page of a query says of its alerts to its owner."""
    alert = Alert.objects.filter(query=found).first()
    chosen = alerts.chosen(alert) if alert is not None else set()
    told = (
        Entry.objects.filter(position=alert.told_position).first()
        if alert and alert.told_position
        else None
    )
    facts = orjson.loads(told.facts) if told is not None else None
    return {
        "alert": alert,
        "hearers": list(alerts.hearers(found, chosen)),
        "own": [one for one in alerts.hearers(found, ()) if one.person_id is not None],
        "choosable": list(alerts.choosable(found.project)) if found.shared else [],
        "chosen": chosen,
        "told": told,
        "found": alert_notices.counted(facts) if facts else "",
        "pinned": alert_notices.words_of(told).get("pinned", "") if told is not None else "",
        "first": alert_notices.handles(facts["entity"], facts["first"]) if facts else [],
    }
