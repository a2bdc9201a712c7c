"""Equal calls of several sessions, one of unknown outcome."""

from django.db import models
from django.db.models import F, Q

from ledger.models import Effect
from sessions.models import Project, Session


class SameCall(models.Model):
    """Links `effect` to `other`, the same call with unknown outcome then.

    There is no foreign key constraint: it would lock the other effect's row, whose worker may be
    about to write the opposite link.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    effect = models.ForeignKey(
        Effect, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    other = models.ForeignKey(
        Effect, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    other_session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    position = models.BigIntegerField()  # journal position of the plan or dispatch

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["effect", "other"], name="same_call_is_named_once"),
            models.CheckConstraint(
                condition=~Q(session=F("other_session")), name="same_call_is_of_another_session"
            ),
        ]
        indexes = [
            models.Index(fields=["other"], name="same_call_by_other"),
            models.Index(fields=["session"], name="same_call_by_session"),
            models.Index(fields=["other_session"], name="same_call_by_other_session"),
        ]

    def __str__(self) -> str:
        return f"{self.effect_id} as {self.other_id}"
