"""Pages of erasure: requests with their preview, their confirmation, and legal holds.

Administrators only. A request that covers every project is shown to people who administer all.
"""

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts.access import MemberRequest, role_required
from accounts.models import Membership, Project
from db.errors import ChangeRefused
from erasure import erasure_requests
from erasure.labels import (
    COUNTS_MAY_DIFFER,
    build_count_rows,
    describe_state,
    describe_subject,
)
from erasure.models import ErasureRequest, LegalHold
from erasure.word_match import MAX_WORDS
from sessions.models import Session

PAGE_ROWS = 50
MAX_HOLDS = 100
SUBJECTS = [
    ("words", "Words in texts: an address, a customer number, a name"),
    ("person", "A person of this installation: a reviewer, an owner"),
    ("session", "A session with everything in it"),
]
SCOPES = [("project", "This project"), ("all", "Every project of the installation")]
_PLAIN = {"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}


class ReasonForm(forms.Form):
    """A reason, which stays."""

    reason = forms.CharField(
        label="Reason",
        max_length=erasure_requests.MAX_REASON,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="A legal ground or a ticket. It is never erased: write no personal data.",
    )


class SubjectForm(ReasonForm):
    """What a request erases."""

    subject = forms.ChoiceField(label="Erase", choices=SUBJECTS, widget=forms.RadioSelect)
    words = forms.CharField(
        label="Words, one a line",
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, **_PLAIN}),
        help_text=f"At most {MAX_WORDS}, of three letters or more. Letter case does not count, and"
        " a word is not searched for within longer words. For a person: other names of them.",
    )
    person = forms.ModelChoiceField(
        User.objects.none(),
        to_field_name="username",
        label="Person",
        required=False,
        empty_label="(nobody)",
    )
    session = forms.CharField(
        label="Session",
        required=False,
        max_length=40,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text="Its handle, such as s_41.",
    )
    scope = forms.ChoiceField(label="In the texts of", choices=SCOPES, initial="project")
    keeps_decisions = forms.BooleanField(
        label="Keep the reasons that people gave for votes, stops and resolutions",
        required=False,
    )
    field_order = ["subject", "words", "person", "session", "scope", "keeps_decisions", "reason"]

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.project = project
        members = User.objects.filter(memberships__project=project).order_by("username")
        cast("forms.ModelChoiceField[User]", self.fields["person"]).queryset = members

    def clean(self) -> dict[str, Any]:
        """Require what the chosen subject needs, and drop the rest."""
        values = super().clean() or {}
        subject = values.get("subject")
        values["words"] = (values.get("words") or "").splitlines() if subject != "session" else []
        if subject == "person" and not values.get("person"):
            self.add_error("person", "Choose a person.")
        if subject != "person":
            values["person"] = None
        values["session"] = (
            self._find_session(values.get("session") or "") if subject == "session" else None
        )
        return values

    def _find_session(self, handle: str) -> Session | None:
        number = handle.strip().removeprefix("s_")
        session = None
        if number.isascii() and number.isdecimal() and len(number) < 19:
            session = self.project.sessions.filter(opened_position=int(number)).first()
        if session is None:
            self.add_error(
                "session", "This project has no such session. Enter a handle such as s_41."
            )
        return session


class HoldForm(ReasonForm):
    """What no request erases."""

    words = forms.CharField(
        label="Words, one a line",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, **_PLAIN}),
    )
    session = forms.CharField(
        label="Or a session",
        required=False,
        max_length=40,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text="Its handle, such as s_41.",
    )
    field_order = ["words", "session", "reason"]


@require_safe
@role_required("administrator")
def erasures_page(request: MemberRequest) -> HttpResponse:
    """List requests and holds."""
    return _render_erasures(request, HoldForm())


def _render_erasures(request: MemberRequest, form: HoldForm, status: int = 200) -> HttpResponse:
    rows = _query_requests(request).order_by("-requested_position")
    page = Paginator(rows, PAGE_ROWS).get_page(request.GET.get("page"))
    holds = LegalHold.objects.filter(project=request.membership.project, released_at_us=None)
    context = {
        "page": page,
        "requests": [
            {"row": row, "subject": describe_subject(row), "state": describe_state(row)}
            for row in page
        ],
        "holds": holds.select_related("session", "set_by").order_by("id")[:MAX_HOLDS],
        "form": form,
    }
    return render(request, "erasure/list.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def new_erasure_page(request: MemberRequest) -> HttpResponse:
    """Ask for an erasure; its page shows the preview when it is counted."""
    project = request.membership.project
    first = {"subject": request.GET.get("subject", "words"), "scope": "project"}
    first["session"] = request.GET.get("session", "")
    form = SubjectForm(project, request.POST if request.method == "POST" else None, initial=first)
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        try:
            row = erasure_requests.request_erasure(
                request.user,
                reason=values["reason"],
                project=None if values["scope"] == "all" and not values["session"] else project,
                words=values["words"],
                person=values["person"],
                session=values["session"],
                keeps_decisions=values["keeps_decisions"],
            )
        except ChangeRefused as refusal:
            form.add_error(None, str(refusal))
        else:
            return redirect("erasure", row.pk)
    return render(request, "erasure/new.html", {"form": form}, status=422 if form.errors else 200)


@require_safe
@role_required("administrator")
def erasure_page(request: MemberRequest, erasure: UUID) -> HttpResponse:
    """Show a request: its preview, who acts next, and what was erased."""
    row = _get_request(request, erasure)
    counts = row.erased_counts if row.state in ("running", "scrubbing", "done") else row.counts
    context = {
        "row": row,
        "subject": describe_subject(row),
        "state": describe_state(row),
        "counts": build_count_rows(counts),
        "shown": erasure_requests.digest_counts(row),
        "can_confirm": erasure_requests.can_confirm(row, request.user),
        "is_own": row.asked_by_id == request.user.pk,
        "counts_may_differ": COUNTS_MAY_DIFFER,
    }
    return render(request, "erasure/request.html", context)


@require_POST
@role_required("administrator")
def confirm_erasure_page(request: MemberRequest, erasure: UUID) -> HttpResponse:
    """Confirm a request as the second person."""
    row = _get_request(request, erasure)
    try:
        erasure_requests.confirm_erasure(row.pk, request.user, request.POST.get("shown", ""))
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, "Confirmed. The job erases it within seconds.")
    return redirect("erasure", row.pk)


@require_POST
@role_required("administrator")
def withdraw_erasure_page(request: MemberRequest, erasure: UUID) -> HttpResponse:
    """End a request that nobody confirmed."""
    row = _get_request(request, erasure)
    try:
        erasure_requests.withdraw_erasure(row.pk, request.user)
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, "The request is withdrawn. Nothing was erased.")
    return redirect("erasures")


@require_POST
@role_required("administrator")
def count_erasure_page(request: MemberRequest, erasure: UUID) -> HttpResponse:
    """Count the preview of a request again."""
    row = _get_request(request, erasure)
    try:
        erasure_requests.count_again(row.pk)
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    return redirect("erasure", row.pk)


@require_POST
@role_required("administrator")
def set_hold_page(request: MemberRequest) -> HttpResponse:
    """Set a legal hold."""
    project, form = request.membership.project, HoldForm(request.POST)
    if not form.is_valid():
        return _render_erasures(request, form, 422)
    handle = form.cleaned_data["session"].strip()
    try:
        erasure_requests.set_legal_hold(
            request.user,
            project,
            reason=form.cleaned_data["reason"],
            words=form.cleaned_data["words"].splitlines(),
            session=_find_held_session(project, handle) if handle else None,
        )
    except ChangeRefused as refusal:
        form.add_error(None, str(refusal))
        return _render_erasures(request, form, 422)
    messages.success(request, "The hold is set. No erasure touches it until you release it.")
    return redirect("erasures")


def _find_held_session(project: Project, handle: str) -> Session:
    number = handle.removeprefix("s_")
    is_number = number.isascii() and number.isdecimal() and len(number) < 19
    rows = project.sessions.filter(opened_position=int(number)) if is_number else None
    session = rows.first() if rows is not None else None
    if session is None:
        raise ChangeRefused("This project has no such session. Enter a handle such as s_41.")
    return session


@require_POST
@role_required("administrator")
def release_hold_page(request: MemberRequest, hold: int) -> HttpResponse:
    """Release a legal hold."""
    project = request.membership.project
    if hold >= 2**63 or not LegalHold.objects.filter(pk=hold, project=project).exists():
        raise Http404
    try:
        erasure_requests.release_legal_hold(hold, project, request.user)
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, "The hold is released.")
    return redirect("erasures")


def _query_requests(request: MemberRequest) -> "QuerySet[ErasureRequest]":
    """Return the requests of the current project; for who administers all, also those of all."""
    covered = Q(project=request.membership.project)
    own = Membership.objects.filter(user=request.user, role="administrator").values("project")
    if not Project.objects.exclude(pk__in=own).exists():
        covered |= Q(project=None)
    return ErasureRequest.objects.filter(covered).select_related(
        "asked_by", "confirmed_by", "person__person", "session", "project"
    )


def _get_request(request: MemberRequest, erasure: UUID) -> ErasureRequest:
    row = _query_requests(request).filter(pk=erasure).first()
    if row is None:
        raise Http404
    return row
