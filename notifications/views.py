"""Notification settings: channels, their topics and the latest deliveries.

Administrators only.
"""

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

from accounts import one_time_secret
from accounts.access import MemberRequest, role_required
from accounts.models import Project
from approvals.gates.statuses import RISKS
from db.errors import ChangeRefused
from notifications import channels, delivery, notifications
from notifications.models import NotificationChannel

KINDS = [
    ("email", "E-mail"),
    ("slack", "Slack or compatible"),
    ("webhook", "Webhook: signed ids for a program"),
    ("cloudevents", "Webhook: signed CloudEvents for a program"),
]
TOPICS = [
    ("requests", "Requests that need approval"),
    ("rulings", "Decisions on requests"),
    ("expiries", "Requests that expired"),
    ("violations", "Violations: effects without permission"),
    ("stuck", "Stuck sessions"),
]


class TopicsForm(forms.Form):
    """Topics and minimum risk of a channel."""

    topics = forms.MultipleChoiceField(
        label="Topics",
        choices=TOPICS,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        initial=[name for name, _ in TOPICS],
    )
    minimum_risk = forms.ChoiceField(
        label="Request risk",
        choices=[(risk, risk if risk == RISKS[-1] else f"{risk} and above") for risk in RISKS],
        initial="medium",
    )

    def switches(self) -> dict[str, bool]:
        """Return the chosen topics as columns of the channel."""
        return {name: name in self.cleaned_data["topics"] for name in channels.TOPIC_FLAGS}


class ChannelForm(TopicsForm):
    """A new channel."""

    kind = forms.ChoiceField(label="Kind", choices=KINDS)
    target = forms.CharField(
        label="Address",
        max_length=300,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
        ),
        help_text="An e-mail address, or an https:// URL at a host the operator allows.",
    )
    person = forms.ModelChoiceField(
        User.objects.none(),
        to_field_name="username",
        label="Belongs to",
        required=False,
        empty_label="(shared channel)",
        help_text="Also notified of decisions on their requests and votes, "
        "and of their stuck sessions.",
    )
    field_order = ["kind", "target", "person", "minimum_risk", "topics"]

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        members = User.objects.filter(memberships__project=project).order_by("username")
        cast("forms.ModelChoiceField[User]", self.fields["person"]).queryset = members


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def notifications_page(request: MemberRequest) -> HttpResponse:
    """List channels and latest notifications; POST adds a channel.

    The next page shows the secret of a new webhook once.
    """
    project = request.membership.project
    form = ChannelForm(project, request.POST or None)
    if request.method == "POST" and form.is_valid():
        wanted = form.cleaned_data
        try:
            with transaction.atomic(durable=True):
                is_cloudevents = wanted["kind"] == "cloudevents"
                channel = channels.add_channel(
                    project,
                    "webhook" if is_cloudevents else wanted["kind"],
                    wanted["target"].strip(),
                    request.user,
                    body_form="cloudevents" if is_cloudevents else "plain",
                    person=wanted["person"],
                    minimum_risk=wanted["minimum_risk"],
                    **form.switches(),
                )
        except ChangeRefused as refusal:
            form.add_error("target", str(refusal))
        else:
            response = redirect("notifications")
            if channel.kind == "webhook":
                one_time_secret.store_secret_once(
                    request,
                    response,
                    channels.derive_webhook_secret(channel.id),
                    kind="webhook",
                    name=channel.shown,
                )
            return response
    rows = project.notification_channels.filter(removed_at_us__isnull=True).select_related(
        "created_by", "person"
    )
    context: dict[str, Any] = {
        "form": form,
        "channels": [_channel_row(channel) for channel in rows.order_by("kind", "target")],
        "notifications": notifications.load_latest_notifications(project.id),
        "shown": one_time_secret.take_secret_once(request),
        "files": delivery.is_mail_written_to_files(),
        "hosts": sorted(settings.GATEBOOK_WEBHOOK_HOSTS),
    }
    return one_time_secret.clear_secret_cookie(
        render(
            request, "notifications/notifications.html", context, status=422 if form.errors else 200
        )
    )


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def channel_page(request: MemberRequest, channel: UUID) -> HttpResponse:
    """Change the topics and minimum risk of a channel."""
    channel_row = _load_channel(request, channel)
    initial = {"topics": [name for name in channels.TOPIC_FLAGS if getattr(channel_row, name)]}
    form = TopicsForm(
        request.POST or None, initial=initial | {"minimum_risk": channel_row.minimum_risk}
    )
    if request.method == "POST" and form.is_valid():
        with transaction.atomic(durable=True):
            channels.update_channel(
                channel_row,
                request.user,
                minimum_risk=form.cleaned_data["minimum_risk"],
                **form.switches(),
            )
        messages.success(request, f"Saved the topics of {channel_row.shown}.")
        return redirect("notifications")
    return render(
        request,
        "notifications/channel.html",
        {"channel": channel_row, "form": form},
        status=422 if form.errors else 200,
    )


@require_POST
@role_required("administrator")
def toggle_channel(request: MemberRequest, channel: UUID) -> HttpResponse:
    """Turn a channel off or on."""
    channel_row = _load_channel(request, channel)
    with transaction.atomic(durable=True):
        channels.update_channel(channel_row, request.user, enabled=not channel_row.enabled)
    messages.success(
        request,
        f"{channel_row.shown} is {'on' if channel_row.enabled else 'off'}.",
    )
    return redirect("notifications")


@require_POST
@role_required("administrator")
def remove_channel(request: MemberRequest, channel: UUID) -> HttpResponse:
    """Remove a channel; its notifications stay on record."""
    channel_row = _load_channel(request, channel)
    with transaction.atomic(durable=True):
        channels.retire_channel(channel_row, request.user)
    messages.success(request, f"{channel_row.shown} is removed. Nothing more is sent to it.")
    return redirect("notifications")


@require_POST
@role_required("administrator")
def send_test(request: MemberRequest, channel: UUID) -> HttpResponse:
    """Send a test notification through the normal delivery."""
    channel_row = _load_channel(request, channel)
    try:
        with transaction.atomic(durable=True):
            notifications.write_test_notification(
                channel_row, channels.record_channel_test(channel_row, request.user)
            )
    except ChangeRefused as refused:
        messages.error(request, str(refused))
        return redirect("notifications")
    messages.success(
        request,
        f"Test sent to {channel_row.shown}. The list shows the result in a few seconds.",
    )
    return redirect("notifications")


def _load_channel(request: MemberRequest, channel: UUID) -> NotificationChannel:
    return get_object_or_404(
        request.membership.project.notification_channels, pk=channel, removed_at_us__isnull=True
    )


def _channel_row(channel: NotificationChannel) -> dict[str, Any]:
    topics = ", ".join(name for name in channels.TOPIC_FLAGS if getattr(channel, name))
    kind = dict(KINDS)[channel.kind].partition(":")[0].partition(",")[0]
    if channel.body_form == "cloudevents":
        kind = f"{kind}, CloudEvents"
    return {"channel": channel, "kind": kind, "topics": topics}
