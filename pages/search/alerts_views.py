"""Alerts of a saved query: context of its page, and the form that turns them on or off."""

from typing import Any
from uuid import UUID

import orjson
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts.access import MemberRequest, member_required
from db import retry
from db.errors import ChangeRefused
from display import handles
from investigation.alerts import alert_notifications, alert_runner, alerts
from investigation.models import Alert, SavedQuery
from investigation.saved_queries import saved_queries
from journal.models import Entry


@require_POST
@member_required
def switch_alerts(request: MemberRequest, saved_query: UUID) -> HttpResponse:
    """Turn alerts of the reader's own query on or off, then redirect to its page."""
    query = saved_queries.get_saved_query(request.membership, saved_query)
    if query is None or query.owner_id != request.user.pk:
        raise Http404
    try:
        messages.success(request, _switch_alerts(request, query))
    except ChangeRefused as refusal:
        messages.error(request, str(refusal))
    return redirect("saved_query", query.pk)


def _switch_alerts(request: MemberRequest, query: SavedQuery) -> str:
    if request.POST.get("do") != "on":
        off = retry.run_with_retry(lambda: alerts.turn_off_alerts(query, request.user))
        return "Alerts are off." if off else "Alerts were already off."
    wanted = {
        channel_id
        for text in request.POST.getlist("channel")
        if (channel_id := handles.parse_uuid(text)) is not None
    }
    start = alert_runner.start_alert(query)
    retry.run_with_retry(lambda: alerts.turn_on_alerts(query, request.user, start, wanted))
    return "Alerts are on. You get one notification per new match."


def alert_context(query: SavedQuery) -> dict[str, Any]:
    """Return the template context of a query's alerts, for its owner."""
    alert = Alert.objects.filter(query=query).first()
    chosen = alerts.chosen_channels(alert) if alert is not None else set()
    entry = (
        Entry.objects.filter(position=alert.reported_position).first()
        if alert and alert.reported_position
        else None
    )
    facts = orjson.loads(entry.facts) if entry is not None else None
    return {
        "alert": alert,
        "recipients": list(alerts.alert_recipients(query, chosen)),
        "own": [
            channel
            for channel in alerts.alert_recipients(query, ())
            if channel.person_id is not None
        ],
        "choosable": list(alerts.selectable_channels(query.project)) if query.shared else [],
        "chosen": chosen,
        "last_report": entry,
        "match_count": alert_notifications.format_count(facts) if facts else "",
        "pinned": alert_notifications.load_query_text(entry).get("pinned", "")
        if entry is not None
        else "",
        "first": alert_notifications.format_handles(facts["entity"], facts["first"])
        if facts
        else [],
    }
