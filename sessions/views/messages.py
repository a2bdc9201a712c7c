"""The messages about a session, or of an agent's box, and the form by which operators redirect an agent."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django import forms
from django.contrib import messages as said
from django.db import transaction
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from journal.clock import now_us
from journal.ids import uuid7
from sessions import capacity, messages
from sessions.access import MemberRequest, may, member, requires
from sessions.models import Agent, Session
from sessions.models_messages import Capacity
from sessions.refused import RefusedError

PAGE: Final = 50


class MessageForm(forms.Form):
    """What a person writes to an agent. `key` makes a form that was sent twice one message."""

    subject = forms.CharField(
        required=False, max_length=messages.MOST_SUBJECT, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    body = forms.CharField(
        label="Message",
        max_length=messages.MOST_CHARACTERS,
        widget=forms.Textarea(attrs={"rows": 5, "spellcheck": "true"}),
        help_text="The agent finds it in its box when it looks there. It is a word and no leave: no gate opens by it.",
    )
    key = forms.CharField(max_length=64, widget=forms.HiddenInput())


@dataclass(frozen=True, slots=True)
class About:
    """Whose messages a page shows: those about a session, those of an agent's box, or (neither) of the shared one."""

    agent: Agent | None = None
    session: Session | None = None

    @property
    def url(self) -> str:
        """The page."""
        if self.session is not None:
            return reverse("session_messages", args=[self.session.id])
        return reverse("agent_messages", args=[self.agent.id]) if self.agent else reverse("shared_messages")

    @property
    def send_url(self) -> str:
        """Where its form goes."""
        if self.session is not None:
            return reverse("send_to_session", args=[self.session.id])
        return reverse("send_to_agent", args=[self.agent.id]) if self.agent else ""

    @property
    def capacity(self) -> Capacity | None:
        """What the agent said last of how much it can take."""
        if self.agent is None:
            return None
        if self.session is not None:
            return capacity.of(self.agent.id, self.session.id)
        return next(iter(capacity.latest(self.agent.project_id, agent=self.agent.id, limit=1)), None)


@require_safe
@member
def session_messages(request: MemberRequest, session: UUID) -> HttpResponse:
    """The messages about a session, the newest first, and to whom they went."""
    return _page(request, _of_session(request, session), _empty())


@require_safe
@member
def agent_messages(request: MemberRequest, agent: UUID) -> HttpResponse:
    """The messages in an agent's box, the newest first."""
    return _page(request, _of_agent(request, agent), _empty())


@require_safe
@member
def shared_messages(request: MemberRequest) -> HttpResponse:
    """The messages to all agents of the project, the newest first."""
    return _page(request, About(), _empty())


@require_POST
@requires("operator")
def send_to_session(request: MemberRequest, session: UUID) -> HttpResponse:
    """Send a message to the agent of a session, about that session."""
    return _send(request, _of_session(request, session))


@require_POST
@requires("operator")
def send_to_agent(request: MemberRequest, agent: UUID) -> HttpResponse:
    """Send a message to an agent, about no session."""
    return _send(request, _of_agent(request, agent))


def _send(request: MemberRequest, about: About) -> HttpResponse:
    form = MessageForm(request.POST)
    if not form.is_valid():
        return _page(request, about, form, 422)
    words, agent = form.cleaned_data, about.agent
    if agent is None:
        raise Http404
    try:
        with transaction.atomic(durable=True):
            sent = messages.write(request.user, agent, about.session, words["subject"], words["body"], words["key"])
    except RefusedError as refused:
        form.add_error("body", str(refused))
        return _page(request, about, form, 422)
    said.success(request, f"Sent as {sent}. Below it says when {agent.name} has read it.")
    return redirect(about.url)


def _page(request: MemberRequest, about: About, form: MessageForm, status: int = 200) -> HttpResponse:
    before = request.GET.get("before", "")
    below = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None
    found = messages.about(request.membership.project.id, about.agent, about.session, below, PAGE + 1)
    told = about.capacity
    context = {
        "agent": about.agent,
        "agent_session": about.session,
        "about": about,
        "letters": found[:PAGE],
        "older": found[PAGE - 1].message.opened_position if len(found) > PAGE else None,
        "capacity": told,
        "is_fresh": told is not None and capacity.is_fresh(told, now_us()),
        "is_paced": told is not None and capacity.is_paced(told, now_us()),
        "form": form if about.agent is not None and may(request.membership, "operator") else None,
    }
    return render(request, "sessions/messages.html", context, status=status)


def _empty() -> MessageForm:
    return MessageForm(initial={"key": uuid7().hex})


def _of_session(request: MemberRequest, identity: UUID) -> About:
    found = request.membership.project.sessions.select_related("agent").filter(id=identity).first()
    if found is None:
        raise Http404
    return About(found.agent, found)


def _of_agent(request: MemberRequest, identity: UUID) -> About:
    found = request.membership.project.agents.filter(id=identity).first()
    if found is None:
        raise Http404
    return About(found, None)
