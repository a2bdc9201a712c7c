"""Alerts of a saved query: context of its page, and the form that turns them on or off."""

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
    """Turn alerts of the reader's own query on or off, then redirect to its page."""
    query = saved.one(request.membership, saved_query)
    if query is None or query.owner_id != request.user.pk:
        raise Http404
    try:
        messages.success(request, _act(request, query))
    except RefusedError as refusal:
        messages.error(request, str(refusal))
    return redirect("saved_query", query.pk)


def _act(request: MemberRequest, query: SavedQuery) -> str:
    if request.POST.get("do") != "on":
        off = again.durably(lambda: alerts.turn_off(query, request.user))
        return "Alerts are off." if off else "Alerts were already off."
    wanted = {
        channel_id
        for text in request.POST.getlist("channel")
        if (channel_id := handles.as_uuid(text)) is not None
    }
    start = alerting.start(query)
    again.durably(lambda: alerts.turn_on(query, request.user, start, wanted))
    return "Alerts are on. You get one notification per new match."


def shown(query: SavedQuery) -> dict[str, Any]:
    """Return the template context of a query's alerts, for its owner."""
    alert = Alert.objects.filter(query=query).first()
    chosen = alerts.chosen(alert) if alert is not None else set()
    entry = (
        Entry.objects.filter(position=alert.told_position).first()
        if alert and alert.told_position
        else None
    )
    facts = orjson.loads(entry.facts) if entry is not None else None
    return {
        "alert": alert,
        "hearers": list(alerts.hearers(query, chosen)),
        "own": [channel for channel in alerts.hearers(query, ()) if channel.person_id is not None],
        "choosable": list(alerts.choosable(query.project)) if query.shared else [],
        "chosen": chosen,
        "told": entry,
        "found": alert_notices.counted(facts) if facts else "",
        "pinned": alert_notices.words_of(entry).get("pinned", "") if entry is not None else "",
        "first": alert_notices.handles(facts["entity"], facts["first"]) if facts else [],
    }
