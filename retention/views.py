"""Pages of retention: the rules in force, what goes when, and the sets that were loaded.

Operators and administrators read; administrators put a counted set in force.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from accounts.access import MemberRequest, role_required
from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.errors import ChangeRefused
from erasure.models import LegalHold
from journal import body_partitions
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from retention import retention_sets
from retention.models import RetentionSet
from retention.month_rows import build_month_rows

MAX_SETS = 50
MAX_RUNS = 20
MAX_HOLDS = 100


@require_safe
@role_required("operator")
def retention_page(request: MemberRequest) -> HttpResponse:
    """Show the rules in force, what goes when, holds and the last expiries."""
    project = request.membership.project
    rows = RetentionSet.objects.filter(project=project).order_by("-loaded_at_us")[:MAX_SETS]
    holds = LegalHold.objects.filter(project=project, released_at_us=None)
    context = {
        "active": _describe_set(retention_sets.load_active_set(project.pk)),
        "sets": rows,
        "holds": holds.select_related("session").order_by("id")[:MAX_HOLDS],
        "runs": list_expiries(project.pk),
        "partitions": len(body_partitions.load_partitions()),
        "free": max(body_partitions.load_free_positions(), 0),
        "next_us": compute_next_month_us(now_us()),
    }
    return render(request, "retention/retention.html", context)


@require_safe
@role_required("operator")
def retention_set_page(request: MemberRequest, retention_set: UUID) -> HttpResponse:
    """Show a set with its dry run, and the button that puts it in force."""
    row = _get_set(request, retention_set)
    active = retention_sets.load_active_set(row.project_id)
    context = {
        "item": _describe_set(row),
        "is_active": active is not None and active.pk == row.pk,
        "active": active,
    }
    return render(request, "retention/set.html", context)


@require_POST
@role_required("administrator")
def activate_retention_page(request: MemberRequest, retention_set: UUID) -> HttpResponse:
    """Put a counted set in force."""
    row, shown = _get_set(request, retention_set), request.POST.get("shown", "")
    try:
        retention_sets.activate_retention_set(
            row.pk,
            request.membership.project,
            int(shown) if shown.isascii() and shown.isdecimal() and len(shown) < 19 else None,
            actor=ensure_pseudonym(request.user),
        )
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
        return redirect("retention_set", row.pk)
    messages.success(request, f"{row} is in force. The job removes what has expired.")
    return redirect("retention")


@require_POST
@role_required("administrator")
def repeat_dry_run_page(request: MemberRequest, retention_set: UUID) -> HttpResponse:
    """Count a set again."""
    row = _get_set(request, retention_set)
    retention_sets.repeat_dry_run(row.pk, request.membership.project)
    messages.success(request, "The job counts within a minute. Reload the page.")
    return redirect("retention_set", row.pk)


def list_expiries(project: UUID) -> list[dict[str, Any]]:
    """Return the newest entries `retention.expired`. One query."""
    rows = Entry.objects.filter(
        IS_OF_A_RARE_KIND, project=project, kind="retention.expired", lane="system"
    ).order_by("-position")[:MAX_RUNS]
    return [
        {"position": row.position, "at_us": row.received_us, "facts": orjson.loads(row.facts)}
        for row in rows
    ]


def compute_next_month_us(at_us: int) -> int:
    """Return the beginning of the next month (UTC), when texts expire next. Pure."""
    now = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    start = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return int(start.timestamp()) * 1_000_000


def _describe_set(row: RetentionSet | None) -> dict[str, Any] | None:
    if row is None:
        return None
    months = build_month_rows(row, now_us())
    return {
        "row": row,
        "months": months,
        "changes": retention_sets.list_later_changes(row) if row.is_counted else [],
        "share": 100 * row.counted_position // max(row.counted_end, 1),
        "due": sum(item["bodies"] for item in months if item["when"] == "now"),
    }


def _get_set(request: MemberRequest, retention_set: UUID) -> RetentionSet:
    row = RetentionSet.objects.filter(project=request.membership.project, pk=retention_set).first()
    if row is None:
        raise Http404
    return row
