"""A reviewer's own settings: absence, notifications of this browser, daily digest."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, role_required
from approvals import review_settings
from approvals.gates.statuses import US
from approvals.models import ReviewSettings
from db.errors import ChangeRefused

_DAY = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")


class AbsenceForm(forms.Form):
    """First and last day of an absence, and who stands in."""

    first = forms.DateField(label="First day away", required=False, widget=_DAY)
    last = forms.DateField(label="Last day away", required=False, widget=_DAY)
    stand_in = forms.ChoiceField(
        label="Stand-in",
        required=False,
        help_text="Gets what is assigned or mailed to you. Without one, requests that are assigned"
        " to you go back to everybody who may approve them.",
    )

    def __init__(self, names: list[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", "no stand-in"), *((name, name) for name in names)]
        cast("forms.ChoiceField", self.fields["stand_in"]).choices = choices

    def clean(self) -> dict[str, Any]:
        """Both days, or none."""
        values: dict[str, Any] = super().clean() or {}
        if not self.errors and bool(values.get("first")) != bool(values.get("last")):
            self.add_error("last", "Give both days, or neither.")
        return values


class DigestForm(forms.Form):
    """Hour and address of the daily digest."""

    hour = forms.TypedChoiceField(
        label="Daily digest",
        required=False,
        coerce=int,
        empty_value=None,
        choices=[("", "off"), *((str(hour), f"{hour:02}:00 UTC") for hour in range(24))],
    )
    address = forms.EmailField(
        label="E-mail address",
        required=False,
        max_length=254,
        help_text="What waits for you, expired or was decided since the last one. Nothing is sent"
        " when nothing happened.",
    )

    def clean(self) -> dict[str, Any]:
        """An hour needs an address."""
        values: dict[str, Any] = super().clean() or {}
        if not self.errors and values.get("hour") is not None and not values.get("address"):
            self.add_error("address", "Give the address to which the digest is sent.")
        return values


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def review_settings_page(request: MemberRequest) -> HttpResponse:
    """Show and store the settings; each form is sent by itself."""
    membership = request.membership
    stored = review_settings.load_settings(membership)
    reviewers = review_settings.list_reviewers(membership.project_id)
    others = reviewers.exclude(user=request.user.pk).order_by("user__username")
    names = list(others.values_list("user__username", flat=True)[:200])
    sent = request.POST.get("form") if request.method == "POST" else ""
    absence = AbsenceForm(
        names, request.POST if sent == "absence" else None, initial=_list_absence(stored)
    )
    digest = DigestForm(
        request.POST if sent == "digest" else None,
        initial={"hour": stored.digest_hour, "address": stored.digest_address},
    )
    form = {"absence": absence, "digest": digest}.get(sent or "")
    if form is not None and form.is_valid():
        try:
            _save(request, sent or "", form.cleaned_data)
        except ChangeRefused as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, "Stored.")
            return redirect("review_settings")
    context = {"absence": absence, "digest": digest, "stored": stored}
    context["away"] = review_settings.load_absences(membership.project_id)
    status = 422 if absence.errors or digest.errors else 200
    return render(request, "approvals/reviewing.html", context, status=status)


def _list_absence(stored: ReviewSettings) -> dict[str, object]:
    if stored.away_from_us is None or stored.away_until_us is None:
        return {}
    first = datetime.fromtimestamp(stored.away_from_us / US, UTC).date()
    last = datetime.fromtimestamp((stored.away_until_us - 1) / US, UTC).date()
    name = stored.stand_in.get_username() if stored.stand_in is not None else ""
    return {"first": first, "last": last, "stand_in": name}


def _save(request: MemberRequest, sent: str, values: dict[str, Any]) -> None:
    if sent == "digest":
        review_settings.save_digest(request.membership, values["hour"], values["address"])
        return
    first, last = (
        datetime.combine(values[name], datetime.min.time(), UTC) if values[name] else None
        for name in ("first", "last")
    )
    review_settings.save_absence(
        request.membership,
        int(first.timestamp()) * US if first else None,
        int((last + timedelta(days=1)).timestamp()) * US if last else None,
        values["stand_in"],
    )
