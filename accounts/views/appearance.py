"""Settings page of theme and clock, and the clock's switch in the layout."""

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from accounts import people
from accounts.access import MemberRequest, member_required, safe_local_path

CLOCKS = ("utc", "local", "relative")


class AppearanceForm(forms.Form):
    """Theme and clock."""

    theme = forms.ChoiceField(
        choices=[("system", "As the system"), ("light", "Light"), ("dark", "Dark")],
        widget=forms.RadioSelect,
    )
    clock = forms.ChoiceField(
        label="Times",
        choices=[
            ("utc", "In UTC"),
            ("local", "In this browser's zone"),
            ("relative", "As an age: 3 min ago"),
        ],
        widget=forms.RadioSelect,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@member_required
def appearance_page(request: MemberRequest) -> HttpResponse:
    """Show and store theme and clock."""
    person = request.person
    form = AppearanceForm(
        request.POST or None, initial={"theme": person.theme, "clock": person.clock}
    )
    if request.method == "POST" and form.is_valid():
        with transaction.atomic(durable=True):
            people.save_person_settings(request.user, **form.cleaned_data)
        messages.success(request, "Stored. It holds wherever you sign in.")
        return redirect("appearance")
    return render(request, "accounts/appearance.html", {"form": form})


@require_POST
@member_required
def set_clock(request: MemberRequest) -> HttpResponse:
    """Store how a person wants times shown, and go back to their page."""
    choice = request.POST.get("clock", "")
    if choice in CLOCKS:
        with transaction.atomic(durable=True):
            people.save_person_settings(request.user, clock=choice)
    return redirect(safe_local_path(request, request.POST.get("next", "")))
