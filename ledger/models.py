"""The effect ledger: effects and their attempts.

State is a function of marks, which facts set; only ledger/fold/effect_state.py implements it. The
schema rejects every effect that moved without permission, also outside Gatebook's code.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from accounts.models import REF_CLASSES, Agent, Project, Repository
from db.ids import new_uuid7
from journal.order_keys import is_resolution_mark
from ledger import states
from ledger.verdicts.table import REPLAY_ROWS
from sessions.models import Session, Task


def _pairs(column: str, allowed: dict[str, tuple[str, ...]]) -> Q:
    """Return the condition that `column` has an allowed value in each state."""
    # Group states by their allowed values: a shorter condition is checked faster.
    alike: dict[tuple[str, ...], list[str]] = {}
    for state, values in allowed.items():
        alike.setdefault(values, []).append(state)
    condition = Q()
    for values, names in alike.items():
        condition |= Q(state__one_of=names) & Q(**{f"{column}__one_of": values})
    return condition


class Effect(models.Model):
    """One externally visible action: one row per (session, effect_key)."""

    id = models.UUIDField(primary_key=True)  # derived from (session, effect_key)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="effects", db_index=False
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="effects", db_index=False
    )
    agent = models.ForeignKey(
        Agent, on_delete=models.PROTECT, related_name="effects", db_index=False
    )
    task = models.ForeignKey(
        Task, null=True, on_delete=models.PROTECT, related_name="effects", db_index=False
    )
    effect_key = models.CharField(max_length=300)
    # The journal position of its first fact: the handle e_<n>.
    opened_position = models.BigIntegerField()

    # From the winning plan; empty while only later facts have arrived.
    tool = models.CharField(max_length=100, default="", blank=True)
    # The agent's claim: shown, never used.
    claimed_class = models.CharField(max_length=15, default="", blank=True)
    intent_digest = models.CharField(max_length=67, default="", blank=True)  # v1:<64 hex>
    call_id = models.CharField(max_length=200, default="", blank=True)
    turn = models.CharField(max_length=200, default="", blank=True)
    repository = models.ForeignKey(
        Repository, null=True, on_delete=models.PROTECT, related_name="effects", db_index=False
    )
    ref = models.CharField(max_length=200, default="", blank=True)  # as it was sent
    # What git updates for it (accounts/git_refs.py).
    moved_refs = models.CharField(max_length=300, default="", blank=True)
    ref_class = models.CharField(max_length=10, default="", blank=True)  # set on arrival
    # The version of the repository's patterns that set it.
    ref_patterns_version = models.IntegerField(null=True)
    environment = models.CharField(max_length=64, default="", blank=True)
    resource = models.CharField(max_length=300, default="", blank=True)
    parent_effect = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.PROTECT,
        related_name="child_effects",
        db_constraint=False,
        db_index=False,
    )
    compensates = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.PROTECT,
        related_name="compensations",
        db_constraint=False,
        db_index=False,
    )
    # What its acknowledgement undoes of `compensates`: everything (null), the attempts up to this
    # number, for a retry, or only the extras that a probe found (0).
    undoes = models.IntegerField(null=True)
    lane = models.CharField(max_length=8, default="evidence")  # of the plan
    plan_position = models.BigIntegerField(null=True)  # journal position of the winning plan
    redactions = models.IntegerField(default=0)
    # The policy's outcome, its rule (set@version/rule), the tool's declaration at that time
    # (class/reversibility), and whether the outcome was enforced or only observed.
    policy_outcome = models.CharField(max_length=5, default="", blank=True)
    policy_rule = models.CharField(max_length=96, default="", blank=True)
    policy_tool_class = models.CharField(max_length=32, default="", blank=True)
    # Of a shell command with several calls: a digest of the declarations of the other calls.
    policy_parts_digest = models.CharField(max_length=16, default="", db_default="", blank=True)
    policy_enforced = models.BooleanField(default=False)

    # Permission to dispatch. `permission_ref` is opaque here.
    permission = models.CharField(max_length=8, default="none")
    permission_basis = models.CharField(max_length=17, default="", blank=True)
    permission_ref = models.CharField(max_length=64, default="", blank=True)
    permission_until_us = models.BigIntegerField(null=True)
    # The permission of the next attempt, suspended when a late report shows that an earlier one
    # happened. It applies if the next attempt ran as well.
    saved_permission = models.CharField(max_length=8, default="", blank=True)
    saved_permission_until_us = models.BigIntegerField(null=True)

    # What the fold derives from the marks.
    state = models.CharField(max_length=12, default="planned")
    outcome = models.CharField(max_length=7, default="", blank=True)
    attempt_count = models.IntegerField(default=0)  # the highest attempt of any fact
    failure_reason = models.CharField(max_length=8, default="", blank=True)
    external_reference = models.CharField(max_length=300, default="", blank=True)
    violates = models.BooleanField(default=False)  # an integrity.violation names it
    planned_at_us = models.BigIntegerField(null=True)  # the producer's clock, if given
    dispatched_at_us = models.BigIntegerField(null=True)
    settled_at_us = models.BigIntegerField(null=True)

    # Server clocks, which rules use. They follow delivery, so they are not part of the state.
    received_us = models.BigIntegerField()
    changed_us = models.BigIntegerField()
    # After this, a dispatched effect is shown as unknown.
    deadline_us = models.BigIntegerField(null=True)

    planned_mark = models.CharField(max_length=260, default="", blank=True)
    superseded_mark = models.CharField(max_length=260, default="", blank=True)
    resolved_mark = models.CharField(max_length=260, default="", blank=True)
    resolution = models.CharField(max_length=12, default="", blank=True)
    compensated = models.BooleanField(default=False)  # a compensating effect was acknowledged
    # Attempts up to this one were undone, for a retry.
    undone = models.IntegerField(default=0)
    # The code host that confirmed an attempt by an event of its own (ledger/confirmations.py).
    confirmed_by = models.CharField(max_length=8, db_default="", default="", blank=True)
    confirmed_mark = models.CharField(max_length=60, db_default="", default="", blank=True)
    # Copied from a bundle, including its permission; never changes.
    imported = models.BooleanField(db_default=False, default=False)
    version = models.IntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session", "effect_key"], name="effect_key_is_unique_in_session"
            ),
            models.UniqueConstraint(
                fields=["compensates"],
                # Commands guard later attempts: a report of one must never be rejected.
                condition=Q(
                    lane="command", state__in=["planned", "dispatched"], attempt_count__lte=1
                ),
                name="compensation_is_open_once",
            ),
            models.CheckConstraint(condition=~Q(effect_key=""), name="effect_has_a_key"),
            models.CheckConstraint(
                condition=Q(permission__one_of=states.PERMISSIONS),
                name="effect_permission_is_known",
            ),
            models.CheckConstraint(
                condition=Q(permission_basis__one_of=states.PERMISSION_BASES),
                name="effect_permission_basis_is_known",
            ),
            models.CheckConstraint(
                condition=Q(saved_permission__one_of=["", *states.IDLE_PERMISSIONS]),
                name="effect_saved_permission_is_of_the_next_attempt",
            ),
            models.CheckConstraint(
                condition=Q(permission="none") | ~Q(permission_basis=""),
                name="effect_permission_has_a_basis_unless_none",
            ),
            models.CheckConstraint(
                condition=_pairs("permission", states.PERMISSIONS_OF_STATE),
                name="effect_moves_only_with_permission",
            ),
            models.CheckConstraint(
                condition=_pairs("outcome", states.OUTCOME_OF_STATE),
                name="effect_outcome_fits_its_state",
            ),
            models.CheckConstraint(
                # After an attempt only a gate takes permission back, and the basis names how.
                condition=Q(attempt_count=0) | ~Q(permission="none") | ~Q(permission_basis=""),
                name="effect_with_an_attempt_has_a_permission",
            ),
            models.CheckConstraint(
                condition=Q(attempt_count__gte=0), name="effect_attempts_are_counted"
            ),
            models.CheckConstraint(
                condition=Q(state__one_of=["planned", "superseded", "compensated"])
                | Q(attempt_count__gte=1)
                | Q(resolution="happened"),
                name="effect_moves_only_by_an_attempt",
            ),
            models.CheckConstraint(
                condition=Q(undoes__isnull=True) | Q(undoes__gte=0, compensates__isnull=False),
                name="effect_undoes_what_it_compensates",
            ),
            models.CheckConstraint(
                condition=Q(undone__gte=0), name="effect_undone_attempts_are_counted"
            ),
            models.CheckConstraint(
                condition=Q(policy_outcome__one_of=states.POLICY_OUTCOMES),
                name="effect_policy_outcome_is_known",
            ),
            models.CheckConstraint(
                condition=Q(failure_reason__one_of=states.FAILURE_REASONS),
                name="effect_reason_is_known",
            ),
            models.CheckConstraint(
                condition=Q(resolution__one_of=states.RESOLUTIONS),
                name="effect_resolution_is_known",
            ),
            models.CheckConstraint(
                condition=Q(ref_class__one_of=["", *REF_CLASSES]), name="effect_ref_class_is_known"
            ),
            models.CheckConstraint(
                condition=Q(confirmed_by="")
                | (Q(confirmed_by__one_of=states.CODE_HOSTS) & ~Q(confirmed_mark="")),
                name="effect_confirmation_names_its_host",
            ),
            models.CheckConstraint(
                condition=Q(planned_mark="") | (~Q(tool="") & ~Q(intent_digest="")),
                name="effect_plan_names_tool_and_intent",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "opened_position"], name="effect_by_opening"),
            models.Index(fields=["session", "opened_position"], name="effect_by_session"),
            models.Index(fields=["project", "tool", "opened_position"], name="effect_by_tool"),
            # Pages of agents count days and tools in it and fetch no row. An agent has one project.
            models.Index(fields=["agent", "tool", "received_us"], name="effect_by_agent"),
            # Nearly all effects are acknowledged: newest-first reads find them without an index,
            # and each saves an index entry. This index, the next one and that of bad outcomes
            # contain what shown states depend on, so that counting fetches no row.
            models.Index(
                fields=["project", "state", "opened_position", "deadline_us"],
                name="effect_by_state",
                condition=~Q(state="acknowledged"),
            ),
            models.Index(
                fields=["project", "tool", "opened_position", "outcome", "state"],
                name="effect_failed_by_tool",
                condition=Q(state="failed"),
            ),
            models.Index(  # with what the page of an agent counts by: no row is fetched
                fields=["agent", "received_us", "tool", "state"],
                name="effect_error_by_agent",
                condition=Q(outcome="error"),
            ),
            # Effects that may still happen or have an unknown outcome: plans look up their own
            # intent, and resume lists all that must be settled.
            models.Index(
                fields=["session", "intent_digest"],
                name="effect_open_intent",
                condition=Q(state__in=states.OPEN_STATES)
                | Q(outcome="unknown")
                | Q(resolution="compensate"),
            ),
            # Effects that may have happened: plans of every session look up their own intent.
            models.Index(
                fields=["project", "intent_digest"],
                name="effect_unknown_intent",
                condition=Q(state="dispatched") | Q(outcome="unknown"),
            ),
            models.Index(
                fields=["project", "external_reference"],
                name="effect_by_reference",
                condition=~Q(external_reference=""),
            ),
            models.Index(
                fields=["project", "repository", "opened_position"],
                name="effect_by_repository",
                condition=Q(repository__isnull=False),
            ),
            models.Index(
                fields=["project", "ref_class", "opened_position"],
                name="effect_by_ref_class",
                condition=Q(ref_class__in=["production", "protected"]),
            ),
            models.Index(
                fields=["project", "outcome", "opened_position", "state", "tool"],
                name="effect_by_bad_outcome",
                condition=Q(outcome__in=["error", "unknown"]),
            ),
            models.Index(
                fields=["session", "call_id"],
                name="effect_by_call",
                condition=~Q(call_id=""),
            ),
            models.Index(
                fields=["project", "resource", "opened_position"],
                name="effect_by_resource",
                condition=~Q(resource=""),
            ),
            models.Index(
                fields=["compensates"],
                name="effect_by_compensated",
                condition=Q(compensates__isnull=False),
            ),
            models.Index(
                fields=["project", "opened_position"],
                name="effect_violations",
                condition=Q(violates=True),
            ),
            models.Index(
                fields=["project", "opened_position"],
                name="effect_needing_permission",
                condition=Q(policy_outcome__in=["ask", "deny"]),
            ),
            models.Index(
                fields=["project", "intent_digest"],
                name="effect_asked_about",
                condition=~Q(permission_ref=""),
            ),
            models.Index(  # with everything that retries are grouped by: no row is fetched
                fields=[
                    "project",
                    "opened_position",
                    "attempt_count",
                    "received_us",
                    "repository",
                    "session",
                ],
                name="effect_tried_again",
                condition=Q(attempt_count__gt=1),
            ),
            models.Index(
                fields=["project", "confirmed_by", "opened_position"],
                name="effect_by_confirmation",
                condition=~Q(confirmed_by=""),
            ),
            models.Index(
                fields=["project", "opened_position"],
                name="effect_without_permission",
                condition=Q(permission="bypassed"),
            ),
        ]

    def __str__(self) -> str:
        return f"e_{self.opened_position}"


class Attempt(models.Model):
    """One dispatch of an effect."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(  # that of its effect, which has the constraint
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    effect = models.ForeignKey(
        Effect, on_delete=models.PROTECT, related_name="attempts", db_index=False
    )
    number = models.IntegerField()
    remote_key = models.CharField(max_length=64)  # sent to the remote for deduplication
    # The attempt of unknown outcome that it replaces.
    replaces = models.IntegerField(null=True)
    # The row of ledger/verdicts/table.py that allowed it.
    verdict_row = models.CharField(max_length=3, default="", blank=True)
    # Random, chosen when the worker starts.
    process = models.CharField(max_length=64, default="", blank=True)
    lease_epoch = models.BigIntegerField(null=True)
    lane = models.CharField(max_length=8, default="evidence")  # of the dispatch
    permission = models.CharField(max_length=8)  # the permission it ran under
    is_open = models.BooleanField(default=False)  # dispatched, the highest, and without a report
    # A later attempt was dispatched while this one had no report.
    replaced = models.BooleanField(default=False)
    outcome = models.CharField(max_length=7, default="", blank=True)
    failure_reason = models.CharField(max_length=8, default="", blank=True)
    external_reference = models.CharField(max_length=300, default="", blank=True)
    # The entry id that a repeated dispatch must send.
    dispatch_key = models.CharField(max_length=64, default="", blank=True)
    # The server's clock at the dispatch: the deadline counts from here.
    received_us = models.BigIntegerField(null=True)
    # The server's clock at its first fact that was not imported.
    heard_us = models.BigIntegerField(null=True)
    dispatched_at_us = models.BigIntegerField(null=True)
    acknowledged_at_us = models.BigIntegerField(null=True)
    failed_at_us = models.BigIntegerField(null=True)
    # The journal position of the winning acknowledgement or failure.
    answer_position = models.BigIntegerField(null=True)
    dispatched_mark = models.CharField(max_length=260, default="", blank=True)
    acknowledged_mark = models.CharField(max_length=260, default="", blank=True)
    failed_mark = models.CharField(max_length=260, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["effect", "number"], name="attempt_number_is_unique_in_effect"
            ),
            models.UniqueConstraint(
                fields=["effect"],
                condition=Q(is_open=True),
                name="effect_has_at_most_one_open_attempt",
            ),
            models.CheckConstraint(condition=Q(number__gte=1), name="attempt_numbers_start_at_one"),
            models.CheckConstraint(
                condition=Q(permission__one_of=states.MOVED_PERMISSIONS),
                name="attempt_moves_only_with_permission",
            ),
            models.CheckConstraint(
                condition=Q(replaces__isnull=True, verdict_row="")
                | Q(
                    replaces=models.F("number") - 1, verdict_row__one_of=REPLAY_ROWS, lane="command"
                ),
                name="attempt_replaces_by_a_row_of_the_table",
            ),
            models.CheckConstraint(
                condition=Q(lane="evidence") | Q(lane="command", permission="used"),
                name="command_dispatch_uses_its_permission",
            ),
            models.CheckConstraint(
                condition=Q(is_open=False)
                | (
                    ~Q(dispatched_mark="") & Q(acknowledged_mark="", failed_mark="", replaced=False)
                ),
                name="open_attempt_was_dispatched_and_not_answered",
            ),
            models.CheckConstraint(
                condition=Q(outcome__one_of=states.OUTCOMES), name="attempt_outcome_is_known"
            ),
            models.CheckConstraint(
                condition=Q(failure_reason__one_of=states.FAILURE_REASONS),
                name="attempt_reason_is_known",
            ),
            models.CheckConstraint(
                condition=~Q(dispatched_mark="") | ~Q(acknowledged_mark="") | ~Q(failed_mark=""),
                name="attempt_has_a_mark",
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number}"

    @property
    def is_denied(self) -> bool:
        """True if a person resolved it as not happened."""
        return is_resolution_mark(self.failed_mark)


class Breaker(models.Model):
    """Consecutive failures of a tool, and its pause. No row before its first failure."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    tool = models.CharField(max_length=100)
    failures = models.IntegerField(default=0)  # in a row
    opened_at_us = models.BigIntegerField(null=True)  # start of the pause; null: not paused
    until_us = models.BigIntegerField(null=True)  # from then on one trial plan is allowed
    trial = models.UUIDField(null=True)  # the effect of that trial
    # When another trial is allowed, if this one has no outcome by then.
    trial_until_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "tool"], name="breaker_is_one_of_a_tool"),
            models.CheckConstraint(
                condition=Q(failures__gte=0), name="breaker_failures_are_counted"
            ),
            models.CheckConstraint(
                condition=Q(opened_at_us__isnull=True, until_us__isnull=True)
                | Q(opened_at_us__isnull=False, until_us__isnull=False),
                name="breaker_that_opened_has_an_end",
            ),
            models.CheckConstraint(
                condition=Q(trial__isnull=True, trial_until_us__isnull=True)
                | Q(trial__isnull=False, trial_until_us__isnull=False, opened_at_us__isnull=False),
                name="breaker_tries_while_open",
            ),
        ]

    def __str__(self) -> str:
        return f"breaker of {self.tool}"


class Stop(models.Model):
    """A stop of an effect, session, agent, tool or project, until lifted."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="stops", db_index=False
    )
    scope = models.CharField(max_length=7)
    # The id (32 hex) of the effect, session or agent, or the tool's name.
    subject = models.CharField(max_length=100, default="", blank=True)
    set_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    set_at_us = models.BigIntegerField()
    # The journal position of stop.set, whose body has the reason.
    opened_position = models.BigIntegerField()
    lifted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    lifted_at_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "scope", "subject"],
                condition=Q(lifted_at_us__isnull=True),
                name="subject_is_stopped_once",
            ),
            models.CheckConstraint(
                condition=Q(scope__in=states.STOP_SCOPES), name="stop_scope_is_known"
            ),
            models.CheckConstraint(
                condition=Q(scope="project", subject="") | (~Q(scope="project") & ~Q(subject="")),
                name="stop_names_what_it_stops",
            ),
            models.CheckConstraint(
                condition=Q(lifted_at_us__isnull=True, lifted_by__isnull=True)
                | Q(lifted_at_us__isnull=False, lifted_by__isnull=False),
                name="stop_is_lifted_by_a_person",
            ),
        ]

    def __str__(self) -> str:
        return f"stop of a {self.scope}"


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


class Tool(models.Model):
    """An operator's declaration of a tool; undeclared means opaque."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="tools", db_index=False
    )
    name = models.CharField(max_length=100)
    tool_class = models.CharField(max_length=15, default="opaque")
    reversibility = models.CharField(max_length=12, default="irreversible")
    deadline_s = models.IntegerField(default=states.DEFAULT_DEADLINE_S)
    request_lifetime_s = models.IntegerField(default=states.DEFAULT_REQUEST_LIFETIME_S)
    # How long the remote deduplicates our key; 0: not declared.
    key_window_s = models.IntegerField(default=0)
    probe = models.BooleanField(default=False)  # the outcome can be probed
    # What a compensation needs: our key, the remote's reference, or "" for none possible.
    undo = models.CharField(max_length=9, default="", blank=True)
    max_attempts = models.IntegerField(default=states.DEFAULT_MAX_ATTEMPTS)
    max_probes = models.IntegerField(default=states.DEFAULT_MAX_PROBES)
    description = models.CharField(max_length=300, default="", blank=True)
    # Paths of the arguments that tell its requests apart, in the order of lists.
    telling = models.JSONField(default=list, blank=True)
    # Search field -> path of the argument that it indexes.
    fields = models.JSONField(default=dict, blank=True)
    # Conditions on arguments that raise class, reversibility or risk (ledger/tools/raises.py).
    raises = models.JSONField(default=list, blank=True)
    # Usage lines of the shell commands that are its calls (shell/usage_lines.py).
    shell = models.JSONField(default=list, blank=True)
    breaker_failures = models.IntegerField(null=True)  # consecutive failures that pause its plans
    breaker_pause_s = models.IntegerField(null=True)
    declared_at = models.DateTimeField(auto_now=True)
    # Of the project's newest admin.tools_loaded; null in archives and before the first later load.
    declared_position = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"], name="tool_name_is_unique_in_project"
            ),
            models.CheckConstraint(
                condition=Q(breaker_failures__isnull=True, breaker_pause_s__isnull=True)
                | Q(
                    breaker_failures__isnull=False,  # a CHECK accepts unknown values: NULL > 0
                    breaker_failures__gt=0,
                    breaker_pause_s__isnull=False,
                    breaker_pause_s__gt=0,
                ),
                name="tool_breaker_has_all_values",
            ),
            models.CheckConstraint(
                condition=Q(tool_class__in=states.TOOL_CLASSES), name="tool_class_is_known"
            ),
            models.CheckConstraint(
                condition=Q(reversibility__in=states.REVERSIBILITIES),
                name="tool_reversibility_is_known",
            ),
            models.CheckConstraint(
                condition=Q(deadline_s__gt=0, request_lifetime_s__gt=0),
                name="tool_times_are_positive",
            ),
            models.CheckConstraint(
                condition=Q(key_window_s__gte=0, max_attempts__gte=1, max_probes__gte=1),
                name="tool_window_and_counts_are_numbers",
            ),
            models.CheckConstraint(
                condition=Q(undo__in=states.UNDO_REFERENCES), name="tool_undo_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class UsedName(models.Model):
    """A name that plans of a project used: a host, address, account, repository, cluster.

    A job reads it from the plans (ledger/names/). It goes with the last linked plan that is erased.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=12)
    name = models.CharField(max_length=200)  # in the form in which names are compared
    # What readers see of it: names that look alike have one skeleton.
    skeleton = models.CharField(max_length=400)
    # The thirds of the name, to find names that differ by a few letters; "" for kinds and
    # lengths that are not compared so.
    head = models.CharField(max_length=70, default="", blank=True)
    middle = models.CharField(max_length=70, default="", blank=True)
    tail = models.CharField(max_length=70, default="", blank=True)
    first_position = models.BigIntegerField()  # journal positions of the first and last plan
    last_position = models.BigIntegerField()
    first_us = models.BigIntegerField()  # when Gatebook received them
    last_us = models.BigIntegerField()
    uses = models.BigIntegerField(default=1)  # plans

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "kind", "name"], name="used_name_is_listed_once"
            ),
            models.CheckConstraint(
                condition=Q(
                    first_position__gt=0, last_position__gte=F("first_position"), uses__gte=1
                ),
                name="used_name_is_in_the_journal",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "skeleton"], name="used_name_by_skeleton"),
            models.Index(
                fields=["project", "kind", "first_position"], name="used_name_by_first_use"
            ),
            # Two equal thirds find names with one difference, one third those with two.
            *(
                models.Index(
                    fields=["project", "kind", piece, other],
                    name=f"used_name_by_{piece}",
                    condition=~Q(**{piece: ""}),
                )
                for piece, other in (("head", "middle"), ("middle", "tail"), ("tail", "head"))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class UsedNamePlan(models.Model):
    """One of the first plans that used a name; the name is kept while one of them is readable."""

    id = models.BigAutoField(primary_key=True)
    name = models.ForeignKey(
        UsedName, on_delete=models.CASCADE, related_name="plans", db_index=False
    )
    position = models.BigIntegerField()  # of the plan in the journal

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["name", "position"], name="used_name_plan_is_listed_once"
            ),
        ]
        indexes = [models.Index(fields=["position"], name="used_name_plan_by_position")]

    def __str__(self) -> str:
        return f"{self.name_id} at {self.position}"


class UsedNameProgress(models.Model):
    """How far the names of plans were read; one row."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    position = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(id=1, position__gte=0), name="used_name_progress_is_one_row"
            ),
        ]

    def __str__(self) -> str:
        return f"up to {self.position}"
