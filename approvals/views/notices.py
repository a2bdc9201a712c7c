"""Who hears of gates, breaches and what is stuck outside of the pages, and what came of it. For administrators."""

from typing import Any, cast
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from approvals import channels, delivery, notices
from approvals.models_notices import NoticeChannel
from approvals.states import RISKS
from sessions import once
from sessions.access import MemberRequest, requires
from sessions.models import Project
from sessions.refused import RefusedError

KINDS = [
    ("email", "E-mail"),
    ("slack", "Slack, or what takes the same"),
    ("webhook", "Webhook: ids for a program, signed"),
]
TOPICS = [
    ("requests", "Gates that wait for people"),
    ("rulings", "How gates were decided"),
    ("expiries", "Gates that expired"),
    ("breaches", "What happened without leave"),
    ("stuck", "Sessions that are stuck"),
]


class SwitchesForm(forms.Form):
    """What a channel hears of."""

    topics = forms.MultipleChoiceField(
        label="Tell it of",
        choices=TOPICS,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        initial=[name for name, _ in TOPICS],
    )
    minimum_risk = forms.ChoiceField(
        label="Gates of risk",
        choices=[(risk, risk if risk == RISKS[-1] else f"{risk} and above") for risk in RISKS],
        initial="medium",
    )

    def switches(self) -> dict[str, bool]:
        """The chosen topics, as the channel's columns."""
        return {name: name in self.cleaned_data["topics"] for name in channels.SWITCHES}


class ChannelForm(SwitchesForm):
    """A new channel."""

    kind = forms.ChoiceField(label="Kind", choices=KINDS)
    target = forms.CharField(
        label="Address",
        max_length=300,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}),
        help_text="An e-mail address, or an https:// address at a host that the operator allows.",
    )
    person = forms.ModelChoiceField(
        User.objects.none(),
        to_field_name="username",
        label="Whose own it is",
        required=False,
        empty_label="nobody's own",
        help_text="They also hear how gates were decided that are theirs or that they voted on, and when sessions of"
        " theirs are stuck.",
    )
    field_order = ["kind", "target", "person", "minimum_risk", "topics"]

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        members = User.objects.filter(memberships__project=project).order_by("username")
        cast("forms.ModelChoiceField[User]", self.fields["person"]).queryset = members


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def notices_page(request: MemberRequest) -> HttpResponse:
    """List the channels and the latest notices; POST adds a channel, whose secret the next page shows once."""
    project = request.membership.project
    form = ChannelForm(project, request.POST or None)
    if request.method == "POST" and form.is_valid():
        wanted = form.cleaned_data
        try:
            with transaction.atomic(durable=True):
                channel = channels.add(
                    project,
                    wanted["kind"],
                    wanted["target"].strip(),
                    request.user,
                    person=wanted["person"],
                    minimum_risk=wanted["minimum_risk"],
                    **form.switches(),
                )
        except RefusedError as refusal:
            form.add_error("target", str(refusal))
        else:
            response = redirect("notices")
            if channel.kind == "webhook":
                once.put(request, response, channels.secret_of(channel.id), kind="webhook", name=channel.shown)
            return response
    known = project.notice_channels.filter(removed_at_us__isnull=True).select_related("created_by", "person")
    context: dict[str, Any] = {
        "form": form,
        "channels": [_shown(channel) for channel in known.order_by("kind", "target")],
        "notices": notices.latest(project.id),
        "shown": once.take(request),
        "files": delivery.mail_becomes_files(),
        "hosts": sorted(settings.GATEBOOK_WEBHOOK_HOSTS),
    }
    return once.cleared(render(request, "approvals/notices.html", context, status=422 if form.errors else 200))


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def channel_page(request: MemberRequest, channel: UUID) -> HttpResponse:
    """Change what a channel hears of."""
    found = _of(request, channel)
    initial = {"topics": [name for name in channels.SWITCHES if getattr(found, name)]}
    form = SwitchesForm(request.POST or None, initial=initial | {"minimum_risk": found.minimum_risk})
    if request.method == "POST" and form.is_valid():
        with transaction.atomic(durable=True):
            channels.change(found, request.user, minimum_risk=form.cleaned_data["minimum_risk"], **form.switches())
        messages.success(request, f"Stored what {found.shown} hears of.")
        return redirect("notices")
    return render(
        request, "approvals/channel.html", {"channel": found, "form": form}, status=422 if form.errors else 200
    )


@require_POST
@requires("administrator")
def switch_channel(request: MemberRequest, channel: UUID) -> HttpResponse:
    """Turn a channel off, or on again."""
    found = _of(request, channel)
    with transaction.atomic(durable=True):
        channels.change(found, request.user, enabled=not found.enabled)
    messages.success(request, f"{found.shown} is told {'again' if found.enabled else 'nothing for now'}.")
    return redirect("notices")


@require_POST
@requires("administrator")
def remove_channel(request: MemberRequest, channel: UUID) -> HttpResponse:
    """Take a channel away; what it was told stays on record."""
    found = _of(request, channel)
    with transaction.atomic(durable=True):
        channels.remove(found, request.user)
    messages.success(request, f"{found.shown} is removed; nothing is sent there any more.")
    return redirect("notices")


@require_POST
@requires("administrator")
def try_channel(request: MemberRequest, channel: UUID) -> HttpResponse:
    """Send a test, by the way that every notice goes."""
    found = _of(request, channel)
    if not found.enabled:
        messages.error(request, f"{found.shown} is off; turn it on first.")
        return redirect("notices")
    with transaction.atomic(durable=True):
        notices.try_out(found, channels.noted_test(found, request.user))
    messages.success(
        request, f"A test for {found.shown} is on its way; in a few seconds the list says what came of it."
    )
    return redirect("notices")


def _of(request: MemberRequest, channel: UUID) -> NoticeChannel:
    return get_object_or_404(request.membership.project.notice_channels, pk=channel, removed_at_us__isnull=True)


def _shown(channel: NoticeChannel) -> dict[str, Any]:
    told = ", ".join(name for name in channels.SWITCHES if getattr(channel, name))
    kind = dict(KINDS)[channel.kind].partition(":")[0].partition(",")[0]
    return {"channel": channel, "kind": kind, "told": told}
