import django.db.models.deletion
import django.db.models.expressions
import journal.ids
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("agent_sessions", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="effects",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="effects",
                        to="agent_sessions.session",
                    ),
                ),
                (
                    "agent",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="effects",
                        to="agent_sessions.agent",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="effects",
                        to="agent_sessions.task",
                    ),
                ),
                ("effect_key", models.CharField(max_length=300)),
                ("opened_position", models.BigIntegerField()),
                ("tool", models.CharField(blank=True, default="", max_length=100)),
                ("claimed_class", models.CharField(blank=True, default="", max_length=11)),
                ("intent_digest", models.CharField(blank=True, default="", max_length=67)),
                ("call_id", models.CharField(blank=True, default="", max_length=200)),
                ("turn", models.CharField(blank=True, default="", max_length=200)),
                (
                    "repository",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="effects",
                        to="agent_sessions.repository",
                    ),
                ),
                ("ref", models.CharField(blank=True, default="", max_length=200)),
                ("moved_refs", models.CharField(blank=True, default="", max_length=300)),
                ("ref_class", models.CharField(blank=True, default="", max_length=10)),
                ("ref_patterns_version", models.IntegerField(null=True)),
                ("environment", models.CharField(blank=True, default="", max_length=64)),
                ("resource", models.CharField(blank=True, default="", max_length=300)),
                (
                    "parent_effect",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="child_effects",
                        to="ledger.effect",
                    ),
                ),
                (
                    "compensates",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="compensations",
                        to="ledger.effect",
                    ),
                ),
                ("undoes", models.IntegerField(null=True)),
                ("lane", models.CharField(default="evidence", max_length=8)),
                ("plan_position", models.BigIntegerField(null=True)),
                ("redactions", models.IntegerField(default=0)),
                ("judged", models.CharField(blank=True, default="", max_length=5)),
                ("judged_by", models.CharField(blank=True, default="", max_length=96)),
                ("judged_as", models.CharField(blank=True, default="", max_length=24)),
                ("enforced", models.BooleanField(default=False)),
                ("leave", models.CharField(default="held", max_length=8)),
                ("leave_basis", models.CharField(blank=True, default="", max_length=9)),
                ("leave_ref", models.CharField(blank=True, default="", max_length=64)),
                ("leave_until_us", models.BigIntegerField(null=True)),
                ("leave_aside", models.CharField(blank=True, default="", max_length=8)),
                ("leave_aside_until_us", models.BigIntegerField(null=True)),
                ("state", models.CharField(default="planned", max_length=12)),
                ("outcome", models.CharField(blank=True, default="", max_length=7)),
                ("attempt_count", models.IntegerField(default=0)),
                ("failure_reason", models.CharField(blank=True, default="", max_length=8)),
                ("external_reference", models.CharField(blank=True, default="", max_length=300)),
                ("violates", models.BooleanField(default=False)),
                ("planned_at_us", models.BigIntegerField(null=True)),
                ("dispatched_at_us", models.BigIntegerField(null=True)),
                ("settled_at_us", models.BigIntegerField(null=True)),
                ("received_us", models.BigIntegerField()),
                ("changed_us", models.BigIntegerField()),
                ("deadline_us", models.BigIntegerField(null=True)),
                ("planned_mark", models.CharField(blank=True, default="", max_length=260)),
                ("superseded_mark", models.CharField(blank=True, default="", max_length=260)),
                ("resolved_mark", models.CharField(blank=True, default="", max_length=260)),
                ("resolution", models.CharField(blank=True, default="", max_length=12)),
                ("compensated", models.BooleanField(default=False)),
                ("undone", models.IntegerField(default=0)),
                ("imported", models.BooleanField(db_default=False, default=False)),
                ("version", models.IntegerField(default=1)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("session", "effect_key"), name="effect_key_is_unique_in_session"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("attempt_count__lte", 1),
                            ("lane", "command"),
                            ("state__in", ["planned", "dispatched"]),
                        ),
                        fields=("compensates",),
                        name="compensation_is_open_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("effect_key", ""), _negated=True),
                        name="effect_has_a_key",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "leave__one_of",
                                (
                                    "held",
                                    "pending",
                                    "granted",
                                    "refused",
                                    "used",
                                    "observed",
                                    "bypassed",
                                ),
                            )
                        ),
                        name="effect_leave_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "leave_basis__one_of",
                                (
                                    "",
                                    "ruling",
                                    "policy",
                                    "exemption",
                                    "observe",
                                    "import",
                                    "cancelled",
                                    "revoked",
                                    "lapsed",
                                    "returned",
                                    "expired",
                                ),
                            )
                        ),
                        name="effect_leave_basis_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("leave_aside__one_of", ["", "held", "pending", "granted", "refused"])
                        ),
                        name="effect_leave_aside_is_of_the_next_attempt",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("leave", "held"),
                            models.Q(("leave_basis", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="effect_leave_has_a_basis_once_it_is_not_held",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                (
                                    "state__one_of",
                                    ["planned", "failed", "compensated", "superseded"],
                                ),
                                (
                                    "leave__one_of",
                                    (
                                        "held",
                                        "pending",
                                        "granted",
                                        "refused",
                                        "used",
                                        "observed",
                                        "bypassed",
                                    ),
                                ),
                            ),
                            models.Q(
                                ("state__one_of", ["dispatched", "acknowledged"]),
                                ("leave__one_of", ("used", "observed", "bypassed")),
                            ),
                            _connector="OR",
                        ),
                        name="effect_moves_only_with_leave",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("state__one_of", ["planned", "dispatched"]),
                                ("outcome__one_of", ("",)),
                            ),
                            models.Q(
                                ("state__one_of", ["acknowledged"]),
                                ("outcome__one_of", ("ok", "error", "unknown")),
                            ),
                            models.Q(
                                ("state__one_of", ["failed"]),
                                ("outcome__one_of", ("error", "unknown")),
                            ),
                            models.Q(
                                ("state__one_of", ["compensated", "superseded"]),
                                ("outcome__one_of", ("", "ok", "error", "unknown")),
                            ),
                            _connector="OR",
                        ),
                        name="effect_outcome_fits_its_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("attempt_count", 0),
                            models.Q(("leave", "held"), _negated=True),
                            models.Q(("leave_basis", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="effect_with_an_attempt_is_not_held",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("attempt_count__gte", 0)),
                        name="effect_attempts_are_counted",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__one_of", ["planned", "superseded", "compensated"]),
                            ("attempt_count__gte", 1),
                            ("resolution", "happened"),
                            _connector="OR",
                        ),
                        name="effect_moves_only_by_an_attempt",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("undoes__isnull", True),
                            models.Q(("compensates__isnull", False), ("undoes__gte", 0)),
                            _connector="OR",
                        ),
                        name="effect_undoes_what_it_compensates",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("undone__gte", 0)),
                        name="effect_undone_attempts_are_counted",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("judged__one_of", ("", "allow", "ask", "deny"))),
                        name="effect_judgement_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("failure_reason__one_of", ("", "rejected", "timeout", "error"))
                        ),
                        name="effect_reason_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "resolution__one_of",
                                ("", "happened", "not_happened", "compensate", "abandoned"),
                            )
                        ),
                        name="effect_resolution_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ref_class__one_of", ["", "production", "protected", "other"])
                        ),
                        name="effect_ref_class_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("planned_mark", ""),
                            models.Q(
                                models.Q(("tool", ""), _negated=True),
                                models.Q(("intent_digest", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="effect_plan_names_tool_and_intent",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["project", "opened_position"], name="effect_by_opening"),
                    models.Index(fields=["session", "opened_position"], name="effect_by_session"),
                    models.Index(
                        fields=["project", "tool", "opened_position"], name="effect_by_tool"
                    ),
                    models.Index(
                        condition=models.Q(("state", "acknowledged"), _negated=True),
                        fields=["project", "state", "opened_position", "deadline_us"],
                        name="effect_by_state",
                    ),
                    models.Index(
                        condition=models.Q(("state", "failed")),
                        fields=["project", "tool", "opened_position", "outcome", "state"],
                        name="effect_failed_by_tool",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("state__in", ("planned", "dispatched", "failed")),
                            ("outcome", "unknown"),
                            ("resolution", "compensate"),
                            _connector="OR",
                        ),
                        fields=["session", "intent_digest"],
                        name="effect_open_intent",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("state", "dispatched"), ("outcome", "unknown"), _connector="OR"
                        ),
                        fields=["project", "intent_digest"],
                        name="effect_unknown_intent",
                    ),
                    models.Index(
                        condition=models.Q(("external_reference", ""), _negated=True),
                        fields=["project", "external_reference"],
                        name="effect_by_reference",
                    ),
                    models.Index(
                        condition=models.Q(("repository__isnull", False)),
                        fields=["project", "repository", "opened_position"],
                        name="effect_by_repository",
                    ),
                    models.Index(
                        condition=models.Q(("ref_class__in", ["production", "protected"])),
                        fields=["project", "ref_class", "opened_position"],
                        name="effect_by_ref_class",
                    ),
                    models.Index(
                        condition=models.Q(("outcome__in", ["error", "unknown"])),
                        fields=["project", "outcome", "opened_position", "state"],
                        name="effect_by_bad_outcome",
                    ),
                    models.Index(
                        condition=models.Q(("resource", ""), _negated=True),
                        fields=["project", "resource", "opened_position"],
                        name="effect_by_resource",
                    ),
                    models.Index(
                        condition=models.Q(("compensates__isnull", False)),
                        fields=["compensates"],
                        name="effect_by_compensated",
                    ),
                    models.Index(
                        condition=models.Q(("violates", True)),
                        fields=["project", "opened_position"],
                        name="effect_violations",
                    ),
                    models.Index(
                        condition=models.Q(("judged__in", ["ask", "deny"])),
                        fields=["project", "opened_position"],
                        name="effect_judged_to_need_leave",
                    ),
                    models.Index(
                        condition=models.Q(("leave_ref", ""), _negated=True),
                        fields=["project", "intent_digest"],
                        name="effect_asked_about",
                    ),
                    models.Index(
                        condition=models.Q(("attempt_count__gt", 1)),
                        fields=[
                            "project",
                            "opened_position",
                            "attempt_count",
                            "received_us",
                            "repository",
                            "session",
                        ],
                        name="effect_tried_again",
                    ),
                    models.Index(
                        condition=models.Q(("leave", "bypassed")),
                        fields=["project", "opened_position"],
                        name="effect_without_leave",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "effect",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="attempts",
                        to="ledger.effect",
                    ),
                ),
                ("number", models.IntegerField()),
                ("remote_key", models.CharField(max_length=64)),
                ("replaces", models.IntegerField(null=True)),
                ("verdict_row", models.CharField(blank=True, default="", max_length=3)),
                ("process", models.CharField(blank=True, default="", max_length=64)),
                ("lease_epoch", models.BigIntegerField(null=True)),
                ("lane", models.CharField(default="evidence", max_length=8)),
                ("leave", models.CharField(max_length=8)),
                ("is_open", models.BooleanField(default=False)),
                ("replaced", models.BooleanField(default=False)),
                ("outcome", models.CharField(blank=True, default="", max_length=7)),
                ("failure_reason", models.CharField(blank=True, default="", max_length=8)),
                ("external_reference", models.CharField(blank=True, default="", max_length=300)),
                ("dispatch_key", models.CharField(blank=True, default="", max_length=64)),
                ("received_us", models.BigIntegerField(null=True)),
                ("heard_us", models.BigIntegerField(null=True)),
                ("dispatched_at_us", models.BigIntegerField(null=True)),
                ("acknowledged_at_us", models.BigIntegerField(null=True)),
                ("failed_at_us", models.BigIntegerField(null=True)),
                ("answer_position", models.BigIntegerField(null=True)),
                ("dispatched_mark", models.CharField(blank=True, default="", max_length=260)),
                ("acknowledged_mark", models.CharField(blank=True, default="", max_length=260)),
                ("failed_mark", models.CharField(blank=True, default="", max_length=260)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("effect", "number"), name="attempt_number_is_unique_in_effect"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("is_open", True)),
                        fields=("effect",),
                        name="effect_has_at_most_one_open_attempt",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("number__gte", 1)), name="attempt_numbers_start_at_one"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("leave__one_of", ("used", "observed", "bypassed"))),
                        name="attempt_moves_only_with_leave",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("replaces__isnull", True), ("verdict_row", "")),
                            models.Q(
                                ("lane", "command"),
                                (
                                    "replaces",
                                    django.db.models.expressions.CombinedExpression(
                                        models.F("number"), "-", models.Value(1)
                                    ),
                                ),
                                ("verdict_row__one_of", ("13", "14", "15", "17", "18", "19", "21")),
                            ),
                            _connector="OR",
                        ),
                        name="attempt_replaces_by_a_row_of_the_table",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lane", "evidence"),
                            models.Q(("lane", "command"), ("leave", "used")),
                            _connector="OR",
                        ),
                        name="command_dispatch_uses_its_leave",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("is_open", False),
                            models.Q(
                                models.Q(("dispatched_mark", ""), _negated=True),
                                ("acknowledged_mark", ""),
                                ("failed_mark", ""),
                                ("replaced", False),
                            ),
                            _connector="OR",
                        ),
                        name="open_attempt_was_dispatched_and_not_answered",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("outcome__one_of", ("", "ok", "error", "unknown"))),
                        name="attempt_outcome_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("failure_reason__one_of", ("", "rejected", "timeout", "error"))
                        ),
                        name="attempt_reason_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("dispatched_mark", ""), _negated=True),
                            models.Q(("acknowledged_mark", ""), _negated=True),
                            models.Q(("failed_mark", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="attempt_has_a_mark",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Hold",
            fields=[
                (
                    "id",
                    models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="holds",
                        to="agent_sessions.project",
                    ),
                ),
                ("scope", models.CharField(max_length=7)),
                ("subject", models.CharField(blank=True, default="", max_length=100)),
                (
                    "set_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("set_at_us", models.BigIntegerField()),
                ("opened_position", models.BigIntegerField()),
                (
                    "lifted_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("lifted_at_us", models.BigIntegerField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("lifted_at_us__isnull", True)),
                        fields=("project", "scope", "subject"),
                        name="thing_is_held_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("scope__in", ("project", "tool", "agent", "session", "effect"))
                        ),
                        name="hold_scope_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("scope", "project"), ("subject", "")),
                            models.Q(
                                models.Q(("scope", "project"), _negated=True),
                                models.Q(("subject", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="hold_names_what_it_stops",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("lifted_at_us__isnull", True), ("lifted_by__isnull", True)),
                            models.Q(("lifted_at_us__isnull", False), ("lifted_by__isnull", False)),
                            _connector="OR",
                        ),
                        name="hold_is_lifted_by_a_person",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Tool",
            fields=[
                (
                    "id",
                    models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tools",
                        to="agent_sessions.project",
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("tool_class", models.CharField(default="opaque", max_length=11)),
                ("reversibility", models.CharField(default="irreversible", max_length=12)),
                ("deadline_s", models.IntegerField(default=300)),
                ("request_lifetime_s", models.IntegerField(default=300)),
                ("key_window_s", models.IntegerField(default=0)),
                ("probe", models.BooleanField(default=False)),
                ("undo", models.CharField(blank=True, default="", max_length=9)),
                ("max_attempts", models.IntegerField(default=3)),
                ("max_probes", models.IntegerField(default=5)),
                ("description", models.CharField(blank=True, default="", max_length=300)),
                ("breaker_failures", models.IntegerField(null=True)),
                ("breaker_pause_s", models.IntegerField(null=True)),
                ("declared_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "name"), name="tool_name_is_unique_in_project"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("breaker_failures__isnull", True),
                                ("breaker_pause_s__isnull", True),
                            ),
                            models.Q(
                                ("breaker_failures__gt", 0),
                                ("breaker_failures__isnull", False),
                                ("breaker_pause_s__gt", 0),
                                ("breaker_pause_s__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="tool_breaker_is_whole",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "tool_class__in",
                                (
                                    "read_only",
                                    "natural",
                                    "keyed",
                                    "joint",
                                    "probeable",
                                    "compensable",
                                    "opaque",
                                ),
                            )
                        ),
                        name="tool_class_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "reversibility__in",
                                ("read", "reversible", "compensable", "irreversible"),
                            )
                        ),
                        name="tool_reversibility_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("deadline_s__gt", 0), ("request_lifetime_s__gt", 0)),
                        name="tool_times_are_positive",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("key_window_s__gte", 0),
                            ("max_attempts__gte", 1),
                            ("max_probes__gte", 1),
                        ),
                        name="tool_window_and_counts_are_numbers",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("undo__in", ("", "key", "reference"))),
                        name="tool_undo_is_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Breaker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
                ("tool", models.CharField(max_length=100)),
                ("failures", models.IntegerField(default=0)),
                ("opened_at_us", models.BigIntegerField(null=True)),
                ("until_us", models.BigIntegerField(null=True)),
                ("trial", models.UUIDField(null=True)),
                ("trial_until_us", models.BigIntegerField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "tool"), name="breaker_is_one_of_a_tool"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("failures__gte", 0)),
                        name="breaker_failures_are_counted",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("opened_at_us__isnull", True), ("until_us__isnull", True)),
                            models.Q(("opened_at_us__isnull", False), ("until_us__isnull", False)),
                            _connector="OR",
                        ),
                        name="breaker_that_opened_has_an_end",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("trial__isnull", True), ("trial_until_us__isnull", True)),
                            models.Q(
                                ("opened_at_us__isnull", False),
                                ("trial__isnull", False),
                                ("trial_until_us__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="breaker_tries_while_open",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SameCall",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "effect",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.effect",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.session",
                    ),
                ),
                (
                    "other",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.effect",
                    ),
                ),
                (
                    "other_session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.session",
                    ),
                ),
                ("position", models.BigIntegerField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["other"], name="same_call_by_other"),
                    models.Index(fields=["session"], name="same_call_by_session"),
                    models.Index(fields=["other_session"], name="same_call_by_other_session"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("effect", "other"), name="same_call_is_named_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("session", models.F("other_session")), _negated=True),
                        name="same_call_is_of_another_session",
                    ),
                ],
            },
        ),
    ]
