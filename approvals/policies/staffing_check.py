"""Find rules that too few people could approve: their requests can only expire."""

from collections.abc import Collection
from typing import Any

from accounts.access import has_role
from accounts.models import Project
from approvals.policies.engine import Requirement


def find_understaffed_rules(project: Project, rules: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (rule, sentence) for each rule with unknown names or too few approvers.

    By today's members and teams. People with an interest in an effect cannot approve it, but who
    that is depends on the effect, so this check ignores it. Three queries, however many rules.
    """
    eligible = load_eligible_reviewers(project)
    team_names = set(project.teams.values_list("name", flat=True))
    problems = []
    for rule in rules["rules"]:
        if rule["require"] is not None:
            requirement = Requirement.of(rule["require"])
            problems += [
                (rule["id"], sentence) for sentence in _sentences(requirement, eligible, team_names)
            ]
    return problems


def load_eligible_reviewers(project: Project) -> dict[str, set[str]]:
    """Return the user names of all active reviewers of a project, with their teams."""
    members = project.memberships.filter(user__is_active=True).select_related("user")
    return {
        member.user.get_username(): {team_member.team.name for team_member in member.teams.all()}
        for member in members.prefetch_related("teams__team")
        if has_role(member, "reviewer")
    }


def count_eligible_approvers(
    requirement: Requirement, eligible: dict[str, set[str]], excluded: Collection[str] = ()
) -> int:
    """Count the people of `eligible` whom a rule asks, without those of `excluded`.

    `excluded` people have an interest in the effect and may not approve it.
    """
    any_reviewer = not requirement.teams and not requirement.people
    return sum(
        name not in excluded
        and (any_reviewer or name in requirement.people or not teams.isdisjoint(requirement.teams))
        for name, teams in eligible.items()
    )


def _sentences(
    requirement: Requirement, eligible: dict[str, set[str]], team_names: set[str]
) -> list[str]:
    sentences = [
        f"The team {name} does not exist in this project."
        for name in requirement.teams
        if name not in team_names
    ]
    sentences += [
        f"{name} is not a reviewer of this project."
        for name in requirement.people
        if name not in eligible
    ]
    count = count_eligible_approvers(requirement, eligible)
    if count < requirement.minimum:
        approvers = "1 approver" if requirement.minimum == 1 else f"{requirement.minimum} approvers"
        verb = "is" if count == 1 else "are"
        sentences.append(
            f"Needs {approvers} but only {count} {verb} eligible; requests will expire."
        )
    return sentences
