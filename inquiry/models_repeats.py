"""Duplicates: the first effect of each call and target, and all effects that share one.

Like the words of effects, a job builds them from the ledger and can build them again.
"""

from django.db import models
from django.db.models import Q

from sessions.models import Project, Session

# What two effects can share. `read` is a call of a tool declared read-only, which changes nothing
# when repeated.
SORTS = ("call", "read", "target")


class FirstDoing(models.Model):
    """The first effect that ran with a digest of tool and arguments, or of tool and target."""

    digest = models.BigIntegerField(primary_key=True)  # Includes the project's id.
    project = models.ForeignKey(  # The session's project, which has the constraint.
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    position = models.BigIntegerField()  # The effect's opened_position.
    told_position = models.BigIntegerField()  # Journal position at which the run became known.

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(position__gt=0), name="first_doing_is_of_an_effect_in_the_journal"
            ),
        ]

    def __str__(self) -> str:
        return f"first in e_{self.position}"


class RepeatedDoing(models.Model):
    """An effect that ran and shares its digest with another.

    `nth` counts the effects with this digest in the session, up to this effect.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(  # The session's project, which has the constraint.
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    session = models.ForeignKey(
        Session,
        on_delete=models.PROTECT,
        related_name="repeated_doings",
        db_index=False,
        db_constraint=False,
    )
    position = models.BigIntegerField()  # The effect's opened_position.
    sort = models.CharField(max_length=6)
    digest = models.BigIntegerField()
    told_position = models.BigIntegerField()  # Journal position at which the run became known.
    # Journal position at which the duplicate became known.
    again_position = models.BigIntegerField()
    nth = models.IntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["position", "sort"], name="doing_is_repeated_once_per_effect"
            ),
            models.CheckConstraint(
                condition=Q(sort__one_of=SORTS), name="repeated_doing_sort_is_known"
            ),
            models.CheckConstraint(
                condition=Q(nth__gte=1, again_position__gte=models.F("told_position")),
                name="repeated_doing_is_counted_and_has_another",
            ),
        ]
        indexes = [
            models.Index(fields=["digest", "position"], name="repeated_by_digest"),
            models.Index(fields=["project", "sort", "position"], name="repeated_by_position"),
            models.Index(
                fields=["project", "nth"], name="repeated_by_count", condition=Q(nth__gt=1)
            ),
            models.Index(fields=["session", "digest", "nth"], name="repeated_by_session"),
        ]

    def __str__(self) -> str:
        return f"{self.sort} of e_{self.position}, {self.nth} in its session"
