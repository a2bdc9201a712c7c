"""Share the people of page tests: two projects, the first with a member per role."""

import time
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.db import transaction
from django.test import Client

from accounts import agents, people, projects, repositories, tokens
from accounts.models import ROLES, Agent, AgentToken, Membership, Project, Repository
from config.middleware import SEEN_S, SIGNED_IN_S

PASSWORD = "slate-lantern-orbit-42"


@dataclass
class Organization:
    """Project "default" with a person per role; project "payments" with a neighbour and token."""

    project: Project
    other: Project
    members: dict[str, Membership]
    neighbour: Membership
    agent: Agent
    token: AgentToken
    other_token: AgentToken
    repository: Repository
    other_repository: Repository

    def client(self, name: str, *, csrf: bool = False) -> Client:
        """Return a browser signed in as the person `name`."""
        client = Client(enforce_csrf_checks=csrf)
        client.cookies[settings.SESSION_COOKIE_NAME] = signed_in(name)
        return client


def signed_in(name: str) -> str:
    """Store the session of a signed-in person and return its cookie.

    A real sign-in writes five times more.
    """
    user, store, now = User.objects.get(username=name), SessionStore(), int(time.time())
    store[SESSION_KEY], store[BACKEND_SESSION_KEY] = (
        str(user.pk),
        settings.AUTHENTICATION_BACKENDS[-1],
    )
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store[SIGNED_IN_S] = store[SEEN_S] = now
    store.save()
    return str(store.session_key)


def build() -> Organization:
    """Create the installation through service functions."""
    with transaction.atomic():
        project, other = projects.ensure_default_project(), projects.create_project("payments")
        members = {role: people.add_project_member(project, role, role, PASSWORD) for role in ROLES}
        neighbour = people.add_project_member(other, "neighbour", "administrator", PASSWORD)
        agent = agents.ensure_agent(project, "deploy-7", members["operator"].user)
        stranger = agents.ensure_agent(other, "build-4")
        for each_agent in (agent, stranger):
            tokens.issue_token(each_agent, expires_in=None, actor="gatebook")
        return Organization(
            project=project,
            other=other,
            members=members,
            neighbour=neighbour,
            agent=agent,
            token=AgentToken.objects.get(agent=agent),
            other_token=AgentToken.objects.get(agent=stranger),
            repository=repositories.ensure_repository(project, "web"),
            other_repository=repositories.ensure_repository(other, "ledger"),
        )
