"""Finds rules that ask people who are not there: what such a rule holds can only expire."""

from collections.abc import Collection
from typing import Any

from approvals.requirement import Requirement
from sessions.access import may
from sessions.models import Project


def unanswerable(project: Project, rules: dict[str, Any]) -> list[tuple[str, str]]:
    """(rule, sentence) for every rule that names unknown teams or people, or wants more people than could answer.

    Goes by today's members and teams. Whoever has a part in an effect may not answer for it, so a rule that nobody else
    could answer is not found here. Three queries, however many rules.
    """
    able = who_may_answer(project)
    known = set(project.teams.values_list("name", flat=True))
    found = []
    for rule in rules["rules"]:
        if rule["require"] is not None:
            needed = Requirement.of(rule["require"])
            found += [(rule["id"], sentence) for sentence in _sentences(needed, able, known)]
    return found


def who_may_answer(project: Project) -> dict[str, set[str]]:
    """The user names of all active reviewers of a project, with their teams."""
    members = project.memberships.filter(user__is_active=True).select_related("user")
    return {
        one.user.get_username(): {each.team.name for each in one.teams.all()}
        for one in members.prefetch_related("teams__team")
        if may(one, "reviewer")
    }


def how_many(needed: Requirement, able: dict[str, set[str]], away: Collection[str] = ()) -> int:
    """How many of `able` a rule asks; those of `away` have a part in it and may not say yes."""
    anybody = not needed.teams and not needed.people
    return sum(
        name not in away
        and (anybody or name in needed.people or not teams.isdisjoint(needed.teams))
        for name, teams in able.items()
    )


def _sentences(needed: Requirement, able: dict[str, set[str]], known: set[str]) -> list[str]:
    found = [
        f"It asks the team {name}, which this project does not have."
        for name in needed.teams
        if name not in known
    ]
    found += [
        f"It asks {name}, who is no reviewer of this project."
        for name in needed.people
        if name not in able
    ]
    answering = how_many(needed, able)
    if answering < needed.minimum:
        people = "1 person" if needed.minimum == 1 else f"{needed.minimum} people"
        found.append(
            f"It wants {people} and {answering} could answer: what it holds can only expire."
        )
    return found
