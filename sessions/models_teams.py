"""Teams of a project's members, which rules can ask for approval."""

from django.db import models
from django.db.models import Q

from journal.ids import uuid7
from sessions.models import Membership, Project


class Team(models.Model):
    """A named group of a project's members that rules can ask for approval."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="teams")
    name = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"], name="team_name_is_unique_in_project"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="team_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class TeamMember(models.Model):
    """A member of a team. A person who leaves the project leaves its teams."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="members")
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="teams")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team", "membership"], name="team_member_is_listed_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.membership_id} in {self.team_id}"
