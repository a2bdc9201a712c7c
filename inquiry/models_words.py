"""The searchable words of effects."""

from django.db import models
from django.db.models import Q

from inquiry.words.column import RowId, WordsField
from sessions.models import Project


class EffectWords(models.Model):
    """The words of one effect's tool, target, arguments and results, as last indexed."""

    position = RowId(primary_key=True)  # The effect's opened_position.
    project = models.ForeignKey(  # The effect's project, which has the constraint.
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    words = WordsField()
    cut_short = models.BooleanField(default=False)  # The effect has more words than are stored.

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(position__gt=0), name="words_are_of_an_effect_in_the_journal"
            ),
        ]

    def __str__(self) -> str:
        return f"words of e_{self.position}"
