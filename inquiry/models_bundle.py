"""What bundles brought beside the rows of their sessions: where each comes from, and the gates of another book.

A gate of another book is no Gate here: nobody of this one was asked, and no vote of theirs stands behind it. It is kept
as it was told, in a table that no ruling reads.
"""

from django.db import models
from django.db.models import Q

from journal.ids import uuid7
from ledger.models import Effect
from sessions.models import Project, Session


class ImportedBundle(models.Model):
    """One imported file: its hash, the book it comes from, and up to where it tells the session."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    session = models.OneToOneField(Session, on_delete=models.PROTECT, related_name="+")
    sha256 = models.CharField(max_length=64)  # of the file
    version = models.IntegerField()  # of the format
    told = (
        models.JSONField()
    )  # what the document says beside rows: inquiry/bundles/shape.py, BESIDE
    cut_position = models.BigIntegerField()  # in the journal of origin
    cut_us = models.BigIntegerField()  # by the clock of origin
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
    """A gate of another book with its votes, as a bundle told of it. Never asked, voted on or used here."""

    id = models.UUIDField(primary_key=True)  # derived from the project and the gate's id there
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="+")
    opened_position = models.BigIntegerField()  # of the brought gate.requested: the handle g_<n>
    told = models.JSONField()  # the columns of the gate there, and its votes

    def __str__(self) -> str:
        return f"g_{self.opened_position}"
