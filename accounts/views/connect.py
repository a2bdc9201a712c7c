"""The page on which an administrator issues a token to a waiting `gatebook connect`."""

import json

from django import forms
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from accounts import connect_requests, people
from accounts.access import MemberRequest, role_required
from accounts.views.tokens import LIFETIMES
from db.errors import ChangeRefused

MAX_CLAIM_BYTES = 1_000


class ConnectForm(forms.Form):
    """The agent and the lifetime of its token."""

    agent = forms.CharField(
        label="Agent",
        max_length=64,
        initial="coding-agent",
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
        ),
        help_text="What this coding agent does is recorded under this name. A new name creates a"
        " new agent.",
    )
    expires = forms.ChoiceField(choices=LIFETIMES, initial="90d")
    compared = forms.BooleanField(label="My terminal shows the same code")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def connect_page(request: MemberRequest, code: str) -> HttpResponse:
    """Show for which terminal a token is issued; POST grants it."""
    if not connect_requests.is_connect_code(code):
        raise Http404
    form = ConnectForm(request.POST or None)
    granted = ""
    if request.method == "POST" and form.is_valid():
        try:
            with transaction.atomic(durable=True):
                connect_requests.grant_token(
                    request.membership.project,
                    code,
                    form.cleaned_data["agent"],
                    expires=form.cleaned_data["expires"],
                    actor=people.ensure_pseudonym(request.user),
                )
        except ChangeRefused as refusal:
            form.add_error("agent", str(refusal))
        else:
            granted = form.cleaned_data["agent"]
    context = {
        "form": form,
        "granted": granted,
        "check_code": connect_requests.format_check_code(code),
    }
    return render(request, "accounts/connect.html", context, status=422 if form.errors else 200)


# The command has no cookies; it proves by the secret that it asked.
@csrf_exempt
@require_http_methods(["POST"])
def claim_token_endpoint(request: HttpRequest) -> HttpResponse:
    """Return the token granted for a secret: 202 while nobody has granted one."""
    try:
        fields = json.loads(request.body if len(request.body) <= MAX_CLAIM_BYTES else b"")
        secret = fields["secret"]
    except (ValueError, KeyError, TypeError, RecursionError):
        secret = None
    if not isinstance(secret, str):
        return JsonResponse({"detail": 'Send {"secret": "…"}.'}, status=400)
    connected = None
    try:
        if connect_requests.has_grant(secret):
            with transaction.atomic(durable=True):
                connected = connect_requests.claim_token(secret)
    except ChangeRefused as refusal:
        return JsonResponse({"detail": str(refusal)}, status=409)
    if connected is None:
        return JsonResponse({"status": "waiting"}, status=202)
    return JsonResponse(
        {
            "status": "issued",
            "token": connected.token,
            "agent": connected.agent,
            "project": connected.project,
        }
    )
