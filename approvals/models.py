"""Policies, exemptions, gates and votes.

Rules that no CHECK constraint can express (who may vote, how a gate may move, that a quorum
approved) are triggers: approvals/triggers.py.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from accounts.models import Agent, Project
from approvals.gates import statuses
from db.ids import new_uuid7
from ledger.models import Effect
from ledger.states import REVERSIBILITIES
from sessions.models import Session


class PolicySet(models.Model):
    """Rules as loaded; never changed. A new text is the next version of its name."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="policy_sets")
    name = models.CharField(max_length=24)
    version = models.IntegerField()
    text = models.TextField()  # the YAML as it was loaded
    sha256 = models.CharField(max_length=64)  # of `text`
    rules = models.JSONField()  # parsed and complete: approvals/policies/policies_yaml.py
    loaded_by = models.CharField(max_length=64)  # a pseudonym, or "gatebook" for a command
    loaded_at_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name", "version"], name="policy_set_version_is_unique"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="policy_set_has_a_name"),
            models.CheckConstraint(
                condition=Q(version__gte=1), name="policy_set_versions_start_at_one"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class Activation(models.Model):
    """Which rules were activated when, in which mode, by whom; the latest is current."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="activations")
    policy_set = models.ForeignKey(
        PolicySet, on_delete=models.PROTECT, related_name="activations", db_index=False
    )
    mode = models.CharField(max_length=7)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    actor = models.CharField(max_length=64)
    activated_at_us = models.BigIntegerField()
    is_current = models.BooleanField(default=True)
    # Of policy.activated in the journal; null in rows that are older than the column.
    position = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project"],
                condition=Q(is_current=True),
                name="project_has_one_policy_in_force",
            ),
            models.CheckConstraint(
                condition=Q(mode__in=statuses.POLICY_MODES), name="activation_mode_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy_set_id} {self.mode}"


class Exemption(models.Model):
    """A scoped suspension of approval with reason and end; never overrides a denial."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="exemptions")
    tool = models.CharField(max_length=100)  # a glob, like the next five; empty matches everything
    rule = models.CharField(max_length=64, default="", blank=True)
    agent = models.CharField(max_length=64, default="", blank=True)
    repository = models.CharField(max_length=200, default="", blank=True)
    ref = models.CharField(max_length=200, default="", blank=True)
    environment = models.CharField(max_length=64, default="", blank=True)
    session = models.ForeignKey(
        Session, null=True, on_delete=models.PROTECT, related_name="exemptions", db_index=False
    )
    granted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    # Journal position of the grant, whose body has the reason.
    opened_position = models.BigIntegerField()
    granted_at_us = models.BigIntegerField()  # by the first of `minimum` people
    # Grantors needed: as many as the strictest rule needs that the exemption could suspend.
    minimum = models.IntegerField(default=1)
    # When the last needed grantor granted it; null while it is only requested.
    in_force_at_us = models.BigIntegerField(null=True)
    ends_at_us = models.BigIntegerField()
    revoked_at_us = models.BigIntegerField(null=True)
    # Journal position of exemption.expired, once recorded.
    expired_position = models.BigIntegerField(null=True)
    uses = models.IntegerField(default=0)
    used_at_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(tool=""), name="exemption_names_a_tool"),
            models.CheckConstraint(
                condition=Q(ends_at_us__gt=F("granted_at_us"))
                & Q(
                    ends_at_us__lte=F("granted_at_us") + statuses.MAX_DECIDE_WITHIN_S * statuses.US
                ),
                name="exemption_ends_within_thirty_days",
            ),
            models.CheckConstraint(
                condition=Q(used_at_us__isnull=True) | Q(used_at_us__lte=F("ends_at_us")),
                name="exemption_is_used_before_it_ends",
            ),
            models.CheckConstraint(condition=Q(uses__gte=0), name="exemption_uses_are_counted"),
            models.CheckConstraint(
                condition=Q(minimum__gte=1), name="exemption_needs_at_least_one_person"
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "ends_at_us"],
                name="exemption_live",
                condition=Q(revoked_at_us__isnull=True),
            ),
            models.Index(
                fields=["ends_at_us"],
                name="exemption_end_is_not_recorded",
                condition=Q(revoked_at_us__isnull=True, expired_position__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"exemption of {self.tool}"


class ExemptionVote(models.Model):
    """One person's grant of an exemption and their proof. Never changed."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    exemption = models.ForeignKey(
        Exemption, on_delete=models.PROTECT, related_name="votes", db_index=False
    )
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    actor = models.CharField(max_length=64)  # the grantor's pseudonym
    step_up = models.CharField(max_length=12)
    password_at_us = models.BigIntegerField()  # when the grantor typed it
    position = models.BigIntegerField()  # journal position of the grant's entry
    voted_at_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["exemption", "user"], name="person_grants_an_exemption_once"
            ),
            # Future effects are unknown, so a grant needs the strongest proof that a rule can
            # require.
            models.CheckConstraint(
                condition=Q(step_up=statuses.STEP_UPS[-1]), name="exemption_needs_the_code"
            ),
            models.CheckConstraint(
                condition=Q(password_at_us__lte=F("voted_at_us"))
                & Q(password_at_us__gte=F("voted_at_us") - statuses.PASSWORD_VALID_S * statuses.US),
                name="exemption_needs_a_recent_password",
            ),
        ]

    def __str__(self) -> str:
        return f"granted by {self.actor}"


class Gate(models.Model):
    """An effect's approval request; digest, requirement and limits never change."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="gates", db_index=False
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="gates", db_index=False
    )
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="gates")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="gates", db_index=False)
    # Journal position of gate.requested: the handle g_<n>.
    opened_position = models.BigIntegerField()
    plan_position = models.BigIntegerField()  # of the plan, whose body the card shows

    # What an approval covers.
    # v1:<64 hex> over intent, target, agent, session and on whose behalf.
    digest = models.CharField(max_length=67)
    # Over tool and arguments only.
    intent_digest = models.CharField(max_length=67, default="", blank=True)
    preconditions_digest = models.CharField(max_length=67, default="", blank=True)
    requirement = (
        models.JSONField()
    )  # who must approve, and how: approvals/policies/policies_yaml.py
    requirement_hash = models.CharField(max_length=64)
    policy_set = models.ForeignKey(
        PolicySet, null=True, on_delete=models.PROTECT, related_name="gates", db_index=False
    )
    # Empty if no rule matched.
    rule = models.CharField(max_length=64, default="", blank=True)
    risk = models.CharField(max_length=8)
    reversibility = models.CharField(max_length=12)
    tool = models.CharField(max_length=100)
    repository_name = models.CharField(max_length=200, default="", blank=True)

    # People with an interest in the effect, who may not approve it; null if unknown.
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    session_owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    agent_owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    self_approval = models.BooleanField(default=False)
    minimum = models.IntegerField(default=1)  # distinct people who must approve
    deny_threshold = models.IntegerField(default=1)
    # The least proof of an approval.
    step_up = models.CharField(max_length=12, default="none")
    # The minimum length of an approval's reason.
    reason_of_yes = models.IntegerField(default=0)

    status = models.CharField(max_length=17, default="pending")
    # Why the gate ended, unless the status says it.
    reason = models.CharField(max_length=20, default="", blank=True)
    version = models.IntegerField(default=1)
    requested_at_us = models.BigIntegerField()
    decide_by_us = models.BigIntegerField()
    valid_for_s = models.IntegerField(default=statuses.DEFAULT_VALID_FOR_S)
    # When the gate was approved, denied or returned for changes.
    decided_at_us = models.BigIntegerField(null=True)
    permission_until_us = models.BigIntegerField(null=True)
    used_at_us = models.BigIntegerField(null=True)
    used_attempt = models.IntegerField(null=True)
    ended_at_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["effect"],
                condition=Q(status__in=statuses.OPEN_STATUSES),
                name="effect_has_at_most_one_open_gate",
            ),
            models.CheckConstraint(
                condition=Q(reason__one_of=statuses.GATE_END_REASONS), name="gate_reason_is_known"
            ),
            models.CheckConstraint(
                condition=Q(risk__one_of=statuses.RISKS), name="gate_risk_is_known"
            ),
            models.CheckConstraint(
                condition=Q(reversibility__one_of=REVERSIBILITIES),
                name="gate_reversibility_is_known",
            ),
            models.CheckConstraint(
                condition=Q(step_up__one_of=statuses.STEP_UPS), name="gate_step_up_is_known"
            ),
            models.CheckConstraint(
                condition=Q(step_up="typed_digest")
                | ~(Q(reversibility="irreversible") | Q(risk__one_of=statuses.HIGH_RISKS)),
                name="high_risk_gate_needs_the_code",
            ),
            models.CheckConstraint(
                condition=Q(reason_of_yes__gte=statuses.MIN_REASON_CHARS)
                | Q(reason_of_yes=0) & ~(Q(reversibility="irreversible") | Q(risk="critical")),
                name="irreversible_gate_needs_a_reason",
            ),
            models.CheckConstraint(condition=~Q(digest=""), name="gate_binds_a_digest"),
            models.CheckConstraint(
                condition=Q(minimum__gte=1), name="gate_needs_at_least_one_person"
            ),
            models.CheckConstraint(
                condition=Q(deny_threshold__gte=1), name="gate_is_denied_by_at_least_one"
            ),
            models.CheckConstraint(
                condition=Q(self_approval=False) | Q(risk="low"),
                name="self_approval_needs_low_risk",
            ),
            models.CheckConstraint(
                condition=Q(decide_by_us__gt=F("requested_at_us"))
                & Q(
                    decide_by_us__lte=F("requested_at_us")
                    + statuses.MAX_DECIDE_WITHIN_S * statuses.US
                ),
                name="gate_is_decided_within_thirty_days",
            ),
            models.CheckConstraint(
                condition=Q(valid_for_s__gte=1, valid_for_s__lte=statuses.MAX_VALID_FOR_S),
                name="gate_permission_lasts_at_most_a_day",
            ),
            models.CheckConstraint(
                condition=~Q(status__one_of=statuses.APPROVED_STATUSES)
                | Q(decided_at_us__lte=F("decide_by_us")),
                name="gate_is_approved_before_its_deadline",
            ),
            models.CheckConstraint(
                condition=~Q(status__one_of=statuses.APPROVED_STATUSES)
                | Q(permission_until_us=F("decided_at_us") + F("valid_for_s") * statuses.US),
                name="gate_permission_has_an_end",
            ),
            models.CheckConstraint(
                condition=~Q(status="expired") | Q(ended_at_us__gte=F("decide_by_us")),
                name="gate_expires_after_its_deadline",
            ),
            models.CheckConstraint(
                condition=~Q(status="used")
                | Q(
                    used_at_us__lte=F("permission_until_us"),
                    used_attempt__isnull=False,
                    used_at_us__isnull=False,
                ),
                name="gate_is_used_while_its_permission_lasts",
            ),
            models.CheckConstraint(
                condition=Q(status="used") | Q(used_at_us__isnull=True, used_attempt__isnull=True),
                name="gate_is_used_once",
            ),
            models.CheckConstraint(
                condition=Q(status__one_of=statuses.OPEN_STATUSES, ended_at_us__isnull=True)
                | Q(status__one_of=statuses.FINAL_STATUSES, ended_at_us__isnull=False),
                name="gate_has_ended_or_is_open",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "opened_position"], name="gate_by_opening"),
            models.Index(
                fields=["project", "decide_by_us"],
                name="gate_open",
                condition=Q(status__in=statuses.OPEN_STATUSES),
            ),
            models.Index(
                fields=["decide_by_us"],
                name="gate_pending_by_deadline",
                condition=Q(status="pending"),
            ),
            models.Index(
                fields=["project", "reversibility", "decide_by_us", "opened_position"],
                name="gate_waiting",
                condition=Q(status="pending"),
            ),
            models.Index(
                fields=["permission_until_us"],
                name="gate_approved_by_end",
                condition=Q(status="approved"),
            ),
            models.Index(
                fields=["session", "digest"],
                name="gate_denied_session",
                condition=Q(status="denied_session"),
            ),
            models.Index(
                fields=["project", "tool", "repository_name", "opened_position"],
                name="gate_by_target",
            ),
            models.Index(
                fields=["project", "agent", "tool", "opened_position"], name="gate_by_agent"
            ),
            models.Index(
                fields=["project", "status", "ended_at_us"],
                name="gate_unanswered",
                condition=Q(decided_at_us__isnull=True, ended_at_us__isnull=False),
            ),
            models.Index(fields=["session", "opened_position"], name="gate_by_session"),
            models.Index(
                fields=["project", "decided_at_us"],
                name="gate_by_decision",
                condition=Q(decided_at_us__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"g_{self.opened_position}"


class Vote(models.Model):
    """One person's vote on a gate, and exactly what their page showed. Never changed."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    gate = models.ForeignKey(Gate, on_delete=models.PROTECT, related_name="votes", db_index=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="votes"
    )
    actor = models.CharField(max_length=64)  # the voter's pseudonym
    answer = models.CharField(max_length=15)
    # The team that made the voter eligible.
    team = models.CharField(max_length=64, default="", blank=True)
    card_sha256 = models.CharField(max_length=64)  # of the card as rendered for the voter
    shown_version = models.IntegerField()
    shown_digest = models.CharField(max_length=67)
    shown_at_us = models.BigIntegerField()
    view_complete = models.BooleanField()  # nothing on the card was truncated
    step_up = models.CharField(max_length=12, default="none")
    # When the voter typed the password that the proof rests on.
    password_at_us = models.BigIntegerField(null=True)
    reason_characters = models.IntegerField(default=0)  # the reason itself is in the entry's body
    position = models.BigIntegerField()  # journal position of gate.voted
    voted_at_us = models.BigIntegerField()
    # An approval by the requester, or by the owner of the session or agent.
    own = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["gate", "user"], name="person_votes_once_on_a_gate"),
            models.CheckConstraint(
                condition=Q(own=False) | Q(answer="approve"),
                name="vote_on_own_request_is_an_approval",
            ),
            models.CheckConstraint(
                condition=Q(answer__in=statuses.VOTE_ANSWERS), name="vote_answer_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(answer="approve") | Q(view_complete=True),
                name="approval_saw_everything",
            ),
            models.CheckConstraint(
                condition=Q(step_up__in=statuses.STEP_UPS), name="vote_step_up_is_known"
            ),
            models.CheckConstraint(
                condition=Q(voted_at_us__gte=F("shown_at_us")), name="vote_follows_what_was_shown"
            ),
            models.CheckConstraint(
                condition=Q(reason_characters__gte=0), name="vote_reason_is_counted"
            ),
        ]
        indexes = [
            models.Index(fields=["project", "voted_at_us"], name="vote_by_time"),
            models.Index(
                fields=["project", "gate"], name="vote_on_own_request", condition=Q(own=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.answer} by {self.actor}"


class Addressee(models.Model):
    """A person to whom a request is assigned, or whom a comment on it mentions.

    It orders the queue of that person, and never widens who may vote.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    gate = models.ForeignKey(
        Gate, on_delete=models.PROTECT, related_name="addressees", db_index=False
    )
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    relation = models.CharField(max_length=9)
    position = models.BigIntegerField()  # journal position of gate.assigned or gate.commented

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["gate", "user", "relation"], name="person_is_addressed_once"
            ),
            models.UniqueConstraint(
                fields=["gate"],
                condition=Q(relation="assigned"),
                name="gate_is_assigned_to_one_person",
            ),
            models.CheckConstraint(
                condition=Q(relation__in=statuses.ADDRESSEE_RELATIONS),
                name="addressee_relation_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.relation} {self.user_id}"


class ReviewSettings(models.Model):
    """One member's own settings as a reviewer: absence, and the daily digest by e-mail."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    away_from_us = models.BigIntegerField(null=True)
    away_until_us = models.BigIntegerField(null=True)
    # Gets what is assigned or mailed to the person during the absence.
    stand_in = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    digest_hour = models.SmallIntegerField(null=True)  # in UTC; null: no digest
    digest_address = models.CharField(max_length=254, default="", blank=True)
    digest_sent_us = models.BigIntegerField(null=True)  # the last one that was due

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="member_has_one_settings"),
            models.CheckConstraint(
                condition=Q(away_from_us__isnull=True, away_until_us__isnull=True)
                | Q(away_from_us__isnull=False, away_until_us__gt=F("away_from_us")),
                name="absence_ends_after_its_start",
            ),
            models.CheckConstraint(
                condition=Q(stand_in__isnull=True)
                | Q(away_until_us__isnull=False) & ~Q(stand_in=F("user")),
                name="stand_in_is_another_person",
            ),
            models.CheckConstraint(
                condition=Q(digest_hour__isnull=True)
                | Q(digest_hour__isnull=False, digest_hour__gte=0, digest_hour__lte=23)
                & ~Q(digest_address=""),
                name="digest_has_an_hour_and_an_address",
            ),
        ]

    def __str__(self) -> str:
        return f"settings of {self.user_id}"
