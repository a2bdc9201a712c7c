"""Tables of stuck detection, heartbeats of jobs, and counts of effects by hour and day.

Whether something is stuck is not stored but derived on read (monitoring/stuck).
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from accounts.models import Agent, Project
from db.ids import new_uuid7
from monitoring.stuck.rule_names import RULES
from sessions.models import Session


class StuckEpisode(models.Model):
    """One episode of a rule for a subject: seen, raised by the next evaluation, then cleared."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(
        Session, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    rule = models.CharField(max_length=3)
    subject = models.UUIDField()  # a session, effect, gate or handoff; an agent for S10
    epoch = models.BigIntegerField(default=0)  # of the session's lease
    since_us = models.BigIntegerField()  # when the rule first applied
    seen_us = models.BigIntegerField()
    seen_sweep = models.BigIntegerField()  # number of the evaluation that saw it first
    raised_us = models.BigIntegerField(null=True)
    raised_position = models.BigIntegerField(null=True)  # journal position of session.stuck
    cleared_us = models.BigIntegerField(null=True)
    cleared_position = models.BigIntegerField(null=True)  # … of session.recovered, if ever raised
    says = models.JSONField(default=list)  # evidence of S5, S8 and S10, which no deadline reveals
    needs_person = models.BooleanField(default=True)  # S4: verdict of the last evaluation

    # Set by people.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    snoozed_until_us = models.BigIntegerField(null=True)
    snoozed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    snoozed_position = models.BigIntegerField(null=True)  # of stuck.snoozed, with the reason

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject", "epoch"],
                condition=Q(cleared_us__isnull=True),
                name="stuck_episode_is_open_once",
            ),
            models.CheckConstraint(
                condition=Q(rule__one_of=list(RULES)), name="stuck_rule_is_known"
            ),
            models.CheckConstraint(
                condition=Q(raised_us__isnull=True, raised_position__isnull=True)
                | Q(
                    raised_us__isnull=False,
                    raised_us__gte=F("seen_us"),
                    raised_position__isnull=False,
                ),
                name="stuck_is_raised_after_it_was_seen_and_in_the_journal",
            ),
            models.CheckConstraint(
                condition=Q(cleared_position__isnull=True)
                | Q(raised_us__isnull=False, cleared_us__isnull=False),
                name="stuck_is_cleared_in_the_journal_after_it_was_raised",
            ),
            models.CheckConstraint(
                condition=Q(snoozed_until_us__isnull=True)
                | Q(snoozed_by__isnull=False, snoozed_position__isnull=False),
                name="stuck_is_snoozed_by_a_person_with_a_reason",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "since_us"],
                name="stuck_open_by_age",
                condition=Q(cleared_us__isnull=True),
            ),
            models.Index(
                fields=["session", "since_us"],
                name="stuck_by_session",
                condition=Q(session__isnull=False),
            ),
            models.Index(
                fields=["project", "rule", "raised_position"],
                name="stuck_ever_by_rule",
                condition=Q(raised_position__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}"


class StuckLimit(models.Model):
    """A limit of the stuck rules that differs for one agent."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False)
    name = models.CharField(max_length=16)  # a field of monitoring.stuck.rules.RuleLimits
    value = models.IntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "name"], name="stuck_limit_is_set_once_per_agent"
            ),
            models.CheckConstraint(
                condition=~Q(name="") & Q(value__gte=0), name="stuck_limit_names_a_length"
            ),
        ]
        indexes = [models.Index(fields=["project"], name="stuck_limit_by_project")]

    def __str__(self) -> str:
        return f"{self.agent_id} {self.name}"


class JobHeartbeat(models.Model):
    """The heartbeat of a job of Gatebook: when it last ran, and its usual interval."""

    name = models.CharField(primary_key=True, max_length=16)
    heartbeat_us = models.BigIntegerField()
    every_us = models.BigIntegerField(default=0)  # between the last two heartbeats
    heartbeats = models.BigIntegerField(default=1)  # for the sweeper: the number of its evaluation
    position = models.BigIntegerField(default=0)  # last journal position read by the job
    paused_until_us = models.BigIntegerField(
        default=0
    )  # no alert before this time, after an outage
    succeeded_us = models.BigIntegerField(default=0)  # end of the last successful run; 0: none
    failed_us = models.BigIntegerField(default=0)  # end of the last failed run; 0: none
    # Type of the last error, empty after a successful run.
    error = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(heartbeats__gte=1, every_us__gte=0), name="job_heartbeat_counts_up"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class EffectHour(models.Model):
    """How many effects of a project were first seen in an hour, as far as the job has counted.

    Derived: `manage.py rebuild_counts` counts again. Effects above the job's position are counted
    by those who read (monitoring/effect_hours.py).
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    hour_us = models.BigIntegerField()  # when the hour begins, server's clock, UTC
    effects = models.BigIntegerField()
    first_position = models.BigIntegerField()  # lowest opened_position among them

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "hour_us"], name="effect_hour_is_counted_once"
            ),
            models.CheckConstraint(
                condition=Q(effects__gte=1, first_position__gte=1), name="effect_hour_has_effects"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.effects} from {self.hour_us}"


class EffectDay(models.Model):
    """How often an agent first used a tool on a UTC day, as far as the job has counted.

    Derived and read as EffectHour.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False)
    tool = models.CharField(max_length=100, default="", blank=True)
    day_us = models.BigIntegerField()  # when the day begins, server's clock, UTC
    effects = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "agent", "tool", "day_us"], name="effect_day_is_counted_once"
            ),
            models.CheckConstraint(condition=Q(effects__gte=1), name="effect_day_has_effects"),
        ]
        indexes = [models.Index(fields=["project", "day_us"], name="effect_day_by_project")]

    def __str__(self) -> str:
        return f"{self.effects} of {self.tool} from {self.day_us}"
