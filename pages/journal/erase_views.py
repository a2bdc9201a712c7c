"""Erase the body of a journal entry, whose commitment stays. For administrators."""

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from accounts import people
from accounts.access import MemberRequest, role_required
from erasure import single_erasure
from journal import erasures
from journal.models import Entry

HIGHEST = 2**63 - 1


class ErasureForm(forms.Form):
    """The reason."""

    reason = forms.CharField(
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="A legal ground or a ticket. It is never erased: write no personal data.",
    )

    def clean_reason(self) -> str:
        reason = str(self.cleaned_data["reason"])
        if not reason.isprintable():
            raise forms.ValidationError(
                "The reason contains line breaks or invisible characters. Remove them."
            )
        return reason


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def erase_body_page(request: MemberRequest, position: int) -> HttpResponse:
    """Confirm with a reason, then erase an entry's body. 404 when it has none."""
    project = request.membership.project.id
    entry = Entry.objects.filter(
        project=project, position=min(position, HIGHEST), body__isnull=False
    ).first()
    if entry is None:
        raise Http404
    form = ErasureForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        context = {"entry": entry, "form": form, "taken": _count_exports(entry)}
        return render(
            request, "pages/journal/erase.html", context, status=422 if form.errors else 200
        )
    try:
        single_erasure.erase_single_body(
            project,
            position,
            reason=form.cleaned_data["reason"],
            actor=people.ensure_pseudonym(request.user),
        )
    except erasures.NothingToErase as nothing:
        raise Http404 from nothing
    except single_erasure.ErasureNotJournalled as refusal:
        form.add_error("reason", str(refusal))
        context = {"entry": entry, "form": form, "taken": _count_exports(entry)}
        return render(request, "pages/journal/erase.html", context, status=503)
    messages.success(
        request, f"The body of entry {position} is erased. The entry and its commitment stay."
    )
    return redirect("effect", entry.effect) if entry.effect else redirect("home")


def _count_exports(entry: Entry) -> int:
    """Count the exported files that hold the entry's text, which no erasure reaches."""
    if entry.session is None:
        return 0
    exported = Entry.objects.filter(
        session=entry.session, kind="access.exported", position__gt=entry.position
    )
    return exported.count()
