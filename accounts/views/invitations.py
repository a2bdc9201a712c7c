"""A person's open invitations. The person may belong to no project yet."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from accounts import invitations
from accounts.access import attach_membership, redirect_to_sign_in
from db.errors import ChangeRefused


@require_http_methods(["GET", "HEAD", "POST"])
def invitations_page(request: HttpRequest) -> HttpResponse:
    """List the invitations; POST accepts or declines one."""
    if not request.user.is_authenticated:
        return redirect_to_sign_in(request)
    user = request.user
    if request.method == "POST":
        try:
            with transaction.atomic(durable=True):
                messages.success(
                    request,
                    _answer(user, request.POST.get("invitation", ""), request.POST.get("do")),
                )
        except ChangeRefused as refusal:
            messages.error(request, str(refusal), extra_tags="failed")
        return redirect("invitations" if invitations.query_invitations(user).exists() else "home")
    attach_membership(request)
    return render(
        request, "accounts/invitations.html", {"invitations": invitations.query_invitations(user)}
    )


def _answer(user: User, invitation: str, verb: str | None) -> str:
    try:
        identity = UUID(invitation)
    except ValueError:
        identity = UUID(int=0)
    if verb == "accept":
        membership = invitations.accept_invitation(identity, user)
        return f"You joined {membership.project.name} as {membership.role}."
    invitations.decline_invitation(identity, user)
    return "You declined the invitation."
