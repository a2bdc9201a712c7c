"""Settings page of keyboard shortcuts: the keys, and whether they work."""

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from accounts import people
from accounts.access import MemberRequest, member_required


class ShortcutsForm(forms.Form):
    """Whether single keys navigate."""

    single_keys = forms.BooleanField(required=False, label="Enable keyboard shortcuts")


@require_http_methods(["GET", "HEAD", "POST"])
@member_required
def shortcuts_page(request: MemberRequest) -> HttpResponse:
    """Show the keys, and store whether they work."""
    # A POST without fields is valid: an unchecked box sends nothing.
    sent = request.POST if request.method == "POST" else None
    form = ShortcutsForm(sent, initial={"single_keys": request.person.single_keys})
    if sent is not None and form.is_valid():
        with transaction.atomic(durable=True):
            people.save_person_settings(request.user, **form.cleaned_data)
        messages.success(request, "Stored. It holds wherever you sign in.")
        return redirect("shortcuts")
    return render(request, "accounts/shortcuts.html", {"form": form})
