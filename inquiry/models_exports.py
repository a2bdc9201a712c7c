"""Background exports: requested on a page, written by a job, downloadable for a day."""

from typing import Final

from django.conf import settings
from django.db import models
from django.db.models import Q

from journal.ids import uuid7
from sessions.models import Project

FORMATS: Final = {
    "csv": "CSV: a table for spreadsheets",
    "ndjson": "NDJSON: one JSON object per line",
    "bundle": "Bundle: both, with the query, the position and their hashes, as a zip file",
}
STATES: Final = ("waiting", "running", "done", "failed", "gone")


class Export(models.Model):
    """The results of a query as of one journal position, as one file."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="exports", db_index=False
    )
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    text = models.TextField()  # the query with ages replaced by times
    format = models.CharField(max_length=6)
    position = models.BigIntegerField()  # rows opened later are not included
    state = models.CharField(max_length=7, default="waiting")
    tries = models.IntegerField(default=0)
    rows_done = models.BigIntegerField(default=0)
    rows_in_all = models.BigIntegerField(null=True)  # counted at the start
    size = models.BigIntegerField(null=True)  # of the file, in bytes
    sha256 = models.CharField(max_length=64, default="", blank=True)
    error = models.CharField(max_length=300, default="", blank=True)
    asked_at_us = models.BigIntegerField()
    beat_at_us = models.BigIntegerField(null=True)  # last heartbeat of the writer
    ended_at_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(format__one_of=list(FORMATS)), name="export_format_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state__one_of=list(STATES)), name="export_state_is_known"
            ),
            models.CheckConstraint(condition=~Q(text=""), name="export_has_a_query"),
            models.CheckConstraint(
                condition=~Q(state="done")
                | Q(size__isnull=False, ended_at_us__isnull=False) & ~Q(sha256=""),
                name="export_that_is_done_has_a_file",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "asked_by", "asked_at_us"], name="export_by_person"),
            models.Index(
                fields=["asked_at_us"],
                name="export_unfinished",
                condition=Q(state__in=["waiting", "running"]),
            ),
            models.Index(
                fields=["ended_at_us"], name="export_to_be_removed", condition=Q(state="done")
            ),
        ]

    def __str__(self) -> str:
        return f"export {self.id}"
