"""Agents that the operator has put into one team, and so may speak for each other's sessions."""

from django.db import transaction

from accounts import agents
from accounts.models import Agent


def one_team(*names: str, project: str = "default", team: str = "crew") -> None:
    """Put these agents of a project into one team."""
    found = list(Agent.objects.filter(project__name=project, name__in=names))
    assert {agent.name for agent in found} == set(names)
    with transaction.atomic():
        for agent in found:
            agents.set_agent_team(agent, team)
