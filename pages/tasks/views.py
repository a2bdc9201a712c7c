"""Tasks of a session, and one task with its items."""

from typing import Final
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from display import keyset_pagination
from display.page_params import parse_page_place
from pages.sessions import data
from pages.sessions.data import load_session_or_404
from sessions.models import ITEM_STATES

PAGE_SIZE: Final = 50


@require_safe
@member_required
def session_tasks(request: MemberRequest, session: UUID) -> HttpResponse:
    """List every task of a session, newest first."""
    row = load_session_or_404(request, session)
    place = parse_page_place(request.GET, ())
    page = keyset_pagination.load_keyset_page(
        data.tasks_with_item_counts(row), PAGE_SIZE, place.window
    )
    return render(
        request, "pages/tasks/tasks.html", {"agent_session": row, "page": page, "place": place}
    )


@require_safe
@member_required
def task_page(request: MemberRequest, task: UUID) -> HttpResponse:
    """Show one task: its place in the tree and its items by state."""
    row = (
        request.membership.project.tasks.select_related("session", "parent").filter(id=task).first()
    )
    if row is None:
        raise Http404
    state = request.GET.get("state", "")
    place = parse_page_place(request.GET, ("state",))
    if state and state not in ITEM_STATES:
        place.errors.append(
            f"Unknown item state “{state[:20]}”. Use one of {', '.join(ITEM_STATES)}."
        )
        state = ""
    context = {
        "task": row,
        "agent_session": row.session,
        "counts": data.count_items(row),
        "items": data.load_item_page(row, state, place.window),
        "children": data.load_subtasks(row),
        "place": place,
        "state": state,
    }
    return render(request, "pages/tasks/task.html", context)
