"""Messages about a session or in an inbox, and the form to send one."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django import forms
from django.contrib import messages as alerts
from django.db import transaction
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from accounts.access import MemberRequest, has_role, member_required, role_required
from accounts.models import Agent
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from display.page_params import parse_number
from sessions import capacity, messages
from sessions.models import Capacity, Session

PAGE: Final = 50


class MessageForm(forms.Form):
    """A person's message to an agent; by `key`, a form sent twice is one message."""

    subject = forms.CharField(
        required=False,
        max_length=messages.MAX_SUBJECT_CHARACTERS,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    body = forms.CharField(
        label="Message",
        max_length=messages.MAX_BODY_CHARACTERS,
        widget=forms.Textarea(attrs={"rows": 5, "spellcheck": "true"}),
        help_text="The agent sees it when it reads its inbox. A message does not approve anything.",
    )
    key = forms.CharField(max_length=64, widget=forms.HiddenInput())


@dataclass(frozen=True, slots=True)
class MessageScope:
    """Which messages a page shows: a session's, an agent's inbox, or the shared inbox."""

    agent: Agent | None = None
    session: Session | None = None

    @property
    def title(self) -> str:
        """Return the page's title."""
        if self.session is not None:
            return f"Messages about {self.session}"
        return f"Messages to {self.agent.name}" if self.agent else "Messages to all"

    @property
    def url(self) -> str:
        """Return the page's address."""
        if self.session is not None:
            return reverse("session_messages", args=[self.session.id])
        return (
            reverse("agent_messages", args=[self.agent.id])
            if self.agent
            else reverse("shared_messages")
        )

    @property
    def send_url(self) -> str:
        """Return the form's address; empty where the page has no agent."""
        if self.session is not None:
            return reverse("send_to_session", args=[self.session.id])
        return reverse("send_to_agent", args=[self.agent.id]) if self.agent else ""

    @property
    def capacity(self) -> Capacity | None:
        """Return the agent's latest capacity report."""
        if self.agent is None:
            return None
        if self.session is not None:
            return capacity.load_capacity(self.agent.id, self.session.id)
        return next(
            iter(
                capacity.load_capacity_reports(self.agent.project_id, agent=self.agent.id, limit=1)
            ),
            None,
        )


@require_safe
@member_required
def session_messages(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the messages about a session and their recipients, newest first."""
    return _render_page(request, _about_session(request, session), _empty_form())


@require_safe
@member_required
def agent_messages(request: MemberRequest, agent: UUID) -> HttpResponse:
    """Show the messages in an agent's inbox, newest first."""
    return _render_page(request, _about_agent(request, agent), _empty_form())


@require_safe
@member_required
def shared_messages(request: MemberRequest) -> HttpResponse:
    """Show the messages to all agents of the project, newest first."""
    return _render_page(request, MessageScope(), _empty_form())


@require_POST
@role_required("operator")
def send_to_session(request: MemberRequest, session: UUID) -> HttpResponse:
    """Send a message to the agent of a session, about that session."""
    return _send(request, _about_session(request, session))


@require_POST
@role_required("operator")
def send_to_agent(request: MemberRequest, agent: UUID) -> HttpResponse:
    """Send a message to an agent, about no session."""
    return _send(request, _about_agent(request, agent))


def _send(request: MemberRequest, about: MessageScope) -> HttpResponse:
    form = MessageForm(request.POST)
    if not form.is_valid():
        return _render_page(request, about, form, 422)
    content, agent = form.cleaned_data, about.agent
    if agent is None:
        raise Http404
    try:
        with transaction.atomic(durable=True):
            sent = messages.send_person_message(
                request.user,
                agent,
                about.session,
                content["subject"],
                content["body"],
                content["key"],
            )
    except ChangeRefused as refused:
        form.add_error("body", str(refused))
        return _render_page(request, about, form, 422)
    alerts.success(request, f"Sent as {sent}. The list shows when {agent.name} has read it.")
    return redirect(about.url)


def _render_page(
    request: MemberRequest, about: MessageScope, form: MessageForm, status: int = 200
) -> HttpResponse:
    below = parse_number(request.GET.get("before", ""), 18)
    letters = messages.load_messages_about(
        request.membership.project.id, about.agent, about.session, below, PAGE + 1
    )
    report = about.capacity
    context = {
        "agent": about.agent,
        "agent_session": about.session,
        "about": about,
        "letters": letters[:PAGE],
        "older": letters[PAGE - 1].message.opened_position if len(letters) > PAGE else None,
        "capacity": report,
        "is_fresh": report is not None and capacity.is_capacity_fresh(report, now_us()),
        "is_paced": report is not None and capacity.is_throttling(report, now_us()),
        "form": form
        if about.agent is not None and has_role(request.membership, "operator")
        else None,
    }
    return render(request, "pages/messages/messages.html", context, status=status)


def _empty_form() -> MessageForm:
    return MessageForm(initial={"key": new_uuid7().hex})


def _about_session(request: MemberRequest, identity: UUID) -> MessageScope:
    session = (
        request.membership.project.sessions.select_related("agent").filter(id=identity).first()
    )
    if session is None:
        raise Http404
    return MessageScope(session.agent, session)


def _about_agent(request: MemberRequest, identity: UUID) -> MessageScope:
    agent = request.membership.project.agents.filter(id=identity).first()
    if agent is None:
        raise Http404
    return MessageScope(agent, None)
