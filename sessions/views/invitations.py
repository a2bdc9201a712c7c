"""A person's open invitations. The person may belong to no project yet."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from sessions import invitations
from sessions.access import attach, sign_in_first
from sessions.refused import RefusedError


@require_http_methods(["GET", "HEAD", "POST"])
def invitations_page(request: HttpRequest) -> HttpResponse:
    """List the invitations; POST accepts or declines one."""
    if not request.user.is_authenticated:
        return sign_in_first(request)
    user = request.user
    if request.method == "POST":
        try:
            with transaction.atomic(durable=True):
                messages.success(
                    request,
                    _answer(user, request.POST.get("invitation", ""), request.POST.get("do")),
                )
        except RefusedError as refusal:
            messages.error(request, str(refusal), extra_tags="failed")
        return redirect("invitations" if invitations.of_person(user).exists() else "home")
    attach(request)
    return render(
        request, "sessions/invitations.html", {"invitations": invitations.of_person(user)}
    )


def _answer(user: User, invitation: str, verb: str | None) -> str:
    try:
        identity = UUID(invitation)
    except ValueError:
        identity = UUID(int=0)
    if verb == "accept":
        membership = invitations.accept(identity, user)
        return f"You joined {membership.project.name} as {membership.role}."
    invitations.decline(identity, user)
    return "You declined the invitation."
