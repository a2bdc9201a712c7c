"""Leases: who works on a session, task or resource, and until when.

Every time is the database's. Each subject has one row forever. A takeover raises its epoch, and
writes under a lower epoch are rejected from then on.
"""

from django.db import models
from django.db.models import F, Q

from sessions.models import Agent, Project, Session, Task

KINDS = ("session", "task", "resource")


class Lease(models.Model):
    """A holder's time on one subject.

    Deadlines are computed when heartbeats and progress arrive, never when they are read.
    """

    id = models.UUIDField(primary_key=True)  # derived from (project, kind, subject)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=8)
    subject = models.CharField(max_length=300)  # the id of a session or task, or a resource's name
    session = models.ForeignKey(
        Session, null=True, on_delete=models.PROTECT, related_name="leases", db_index=False
    )
    task = models.ForeignKey(
        Task, null=True, on_delete=models.PROTECT, related_name="leases", db_index=False
    )
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False)
    process = models.CharField(max_length=64)
    epoch = models.BigIntegerField(default=1)
    ttl_s = models.BigIntegerField()
    acquired_at_us = models.BigIntegerField()
    beat_at_us = models.BigIntegerField()  # the last heartbeat
    progress_at_us = models.BigIntegerField()  # the last progress; heartbeats do not change it
    progress_token = models.CharField(max_length=200, default="", blank=True)
    quiet_until_us = models.BigIntegerField(null=True)  # announced by the holder
    expires_at_us = models.BigIntegerField()
    released_at_us = models.BigIntegerField(null=True)
    silent_since_us = models.BigIntegerField(null=True)  # start of a silence that was journalled
    dead_at_us = models.BigIntegerField()  # from when rule S2 applies
    wedged_at_us = models.BigIntegerField()  # from when rule S3 applies
    takeovers = models.IntegerField(default=0)
    version = models.IntegerField(default=1)
    opened_position = models.BigIntegerField()  # of the latest acquisition: handle l_<n>
    now_us: int  # no column: the database's time, where a query annotated it (sessions/holders.py)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "kind", "subject"], name="lease_is_one_per_subject"
            ),
            models.CheckConstraint(condition=Q(kind__one_of=KINDS), name="lease_kind_is_known"),
            models.CheckConstraint(
                condition=~Q(subject="") & ~Q(process=""), name="lease_names_subject_and_process"
            ),
            models.CheckConstraint(
                condition=Q(kind="session", session__isnull=False, task__isnull=True)
                | Q(kind="task", session__isnull=False, task__isnull=False)
                | Q(kind="resource", session__isnull=True, task__isnull=True),
                name="lease_is_on_what_its_kind_says",
            ),
            models.CheckConstraint(condition=Q(epoch__gte=1), name="lease_epoch_begins_at_one"),
            models.CheckConstraint(
                condition=Q(ttl_s__gte=5, ttl_s__lte=3600), name="lease_lasts_seconds_to_an_hour"
            ),
            models.CheckConstraint(
                condition=Q(expires_at_us__gte=F("beat_at_us"), dead_at_us__gte=F("expires_at_us")),
                name="lease_expires_before_it_is_dead",
            ),
        ]
        indexes = [
            models.Index(fields=["session"], name="lease_by_session"),
            models.Index(fields=["project", "opened_position"], name="lease_by_opening"),
            models.Index(fields=["task"], name="lease_by_task", condition=Q(task__isnull=False)),
            models.Index(
                fields=["expires_at_us"],
                name="lease_by_expiry",
                condition=Q(kind="session", released_at_us__isnull=True),
            ),
            models.Index(
                fields=["dead_at_us"],
                name="lease_by_death",
                condition=Q(released_at_us__isnull=True),
            ),
            models.Index(
                fields=["wedged_at_us"],
                name="lease_by_wedging",
                condition=Q(released_at_us__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"l_{self.opened_position}"


class BeatMinute(models.Model):
    """Counts of a lease holder's heartbeats and progress reports in one minute."""

    id = models.BigAutoField(primary_key=True)
    lease = models.ForeignKey(
        Lease, on_delete=models.PROTECT, related_name="minutes", db_index=False
    )
    minute = models.IntegerField()  # minutes since 1970
    beats = models.IntegerField(default=0)
    progresses = models.IntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "minute"], name="beat_minute_is_counted_once"),
            models.CheckConstraint(
                condition=Q(beats__gte=0, progresses__gte=0), name="beat_minute_counts_up"
            ),
        ]
        indexes = [models.Index(fields=["minute"], name="beat_minute_by_time")]

    def __str__(self) -> str:
        return f"{self.lease_id} {self.minute}"
