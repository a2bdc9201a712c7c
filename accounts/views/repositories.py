"""Repositories and their ref patterns, for administrators."""

from uuid import UUID

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from accounts import people, repositories
from accounts.access import MemberRequest, role_required
from db.errors import ChangeRefused

SHOWN = 500
_AREA = {
    "rows": 6,
    "class": "is-code",
    "autocapitalize": "off",
    "autocomplete": "off",
    "spellcheck": "false",
}


class PatternsForm(forms.Form):
    """One glob per line for each class."""

    production = forms.CharField(
        required=False,
        strip=False,
        max_length=20_000,
        widget=forms.Textarea(_AREA),
        label="Production refs",
    )
    protected = forms.CharField(
        required=False,
        strip=False,
        max_length=20_000,
        widget=forms.Textarea(_AREA),
        label="Protected refs",
    )

    def clean_production(self) -> str:
        """Check every line."""
        return self._checked("production")

    def clean_protected(self) -> str:
        """Check every line."""
        return self._checked("protected")

    def _checked(self, field: str) -> str:
        try:
            return "\n".join(repositories.parse_ref_patterns(self.cleaned_data[field]))
        except ChangeRefused as refusal:
            raise forms.ValidationError(str(refusal)) from refusal


@require_safe
@role_required("administrator")
def repositories_page(request: MemberRequest) -> HttpResponse:
    """List the first SHOWN repositories of the project by name."""
    rows = list(request.membership.project.repositories.order_by("name")[: SHOWN + 1])
    context = {"repositories": rows[:SHOWN], "more": len(rows) > SHOWN, "most": SHOWN}
    return render(request, "accounts/repositories.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def repository_page(request: MemberRequest, repository: UUID) -> HttpResponse:
    """Show and change the patterns of one repository."""
    stored = get_object_or_404(request.membership.project.repositories, pk=repository)
    initial = {"production": stored.production_refs, "protected": stored.protected_refs}
    form = PatternsForm(request.POST if request.method == "POST" else None, initial=initial)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic(durable=True):
            changed = repositories.change_ref_patterns(
                stored,
                production=form.cleaned_data["production"],
                protected=form.cleaned_data["protected"],
                actor=people.ensure_pseudonym(request.user),
            )
        message = f"Saved as version {stored.patterns_version}." if changed else "No changes."
        messages.success(request, message)
        return redirect("repository", repository=stored.pk)
    context = {"repository": stored, "form": form}
    return render(request, "accounts/repository.html", context, status=422 if form.errors else 200)
