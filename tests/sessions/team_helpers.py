"""Agents in one team, who may report on each other's sessions."""

from django.db import transaction

from accounts import agents
from accounts.models import Agent


def one_team(*names: str, project: str = "default", team: str = "crew") -> None:
    """Put these agents of a project into one team."""
    agents_found = list(Agent.objects.filter(project__name=project, name__in=names))
    assert {agent.name for agent in agents_found} == set(names)
    with transaction.atomic():
        for agent in agents_found:
            agents.set_agent_team(agent, team)
