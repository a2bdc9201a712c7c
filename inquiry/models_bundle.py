"""Imported bundles and their gates.

An imported gate is not a Gate: nobody of this installation was asked or voted. It is stored as
exported, in a table that no decision reads.
"""

from django.db import models
from django.db.models import Q

from journal.ids import uuid7
from ledger.models import Effect
from sessions.models import Project, Session


class ImportedBundle(models.Model):
    """One imported file: hash, origin and cut."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    session = models.OneToOneField(Session, on_delete=models.PROTECT, related_name="+")
    sha256 = models.CharField(max_length=64)  # of the file
    version = models.IntegerField()  # of the format
    told = models.JSONField()  # parts of the document without a table: bundles/shape.py, BESIDE
    cut_position = models.BigIntegerField()  # in the journal of origin
    cut_us = models.BigIntegerField()  # server time at the origin
    imported_us = models.BigIntegerField()
    position = models.BigIntegerField()  # journal position of admin.bundle_imported

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["sha256"], name="bundle_is_imported_once"),
            models.CheckConstraint(
                condition=Q(version__gte=1), name="bundle_versions_start_at_one"
            ),
        ]

    def __str__(self) -> str:
        return f"bundle {self.sha256[:8]}"


class ImportedGate(models.Model):
    """A gate of another installation with its votes. It cannot be voted on or used."""

    id = models.UUIDField(primary_key=True)  # derived from the project and the original id
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="+")
    opened_position = models.BigIntegerField()  # of the imported gate.requested: the handle g_<n>
    told = models.JSONField()  # columns of the original gate, and its votes

    def __str__(self) -> str:
        return f"g_{self.opened_position}"
