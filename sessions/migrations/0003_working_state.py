import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0002_leases")]

    operations = [
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("cache_keys", models.JSONField(default=list)),
                ("cursor", models.CharField(blank=True, default="", max_length=200)),
                ("pins", models.JSONField(default=dict)),
                ("size", models.IntegerField()),
                ("mark", models.CharField(max_length=260)),
                ("opened_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Decision",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("key", models.CharField(max_length=200)),
                ("effect", models.UUIDField(null=True)),
                ("status", models.CharField(default="open", max_length=9)),
                ("recorded_position", models.BigIntegerField(null=True)),
                ("concluded_position", models.BigIntegerField(null=True)),
                ("recorded_mark", models.CharField(blank=True, default="", max_length=260)),
                ("concluded_mark", models.CharField(blank=True, default="", max_length=260)),
                ("opened_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
                ("concluded_at_us", models.BigIntegerField(null=True)),
                ("version", models.IntegerField(default=1)),
            ],
        ),
        migrations.CreateModel(
            name="Handoff",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("key", models.CharField(max_length=300)),
                ("size", models.IntegerField(default=0)),
                ("waits_on", models.JSONField(default=list)),
                ("written_position", models.BigIntegerField(null=True)),
                ("written_mark", models.CharField(blank=True, default="", max_length=260)),
                ("accepted_mark", models.CharField(blank=True, default="", max_length=260)),
                ("opened_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
                ("accept_by_us", models.BigIntegerField(null=True)),
                ("accepted_at_us", models.BigIntegerField(null=True)),
                ("version", models.IntegerField(default=1)),
            ],
        ),
        migrations.CreateModel(
            name="ObservedFact",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                ("source", models.CharField(max_length=160)),
                ("digest", models.CharField(max_length=32)),
                ("mark", models.CharField(max_length=260)),
                ("position", models.BigIntegerField()),
                ("opened_position", models.BigIntegerField()),
                ("observed_at_us", models.BigIntegerField()),
                ("fresh_until_us", models.BigIntegerField()),
            ],
        ),
        migrations.AddField(
            model_name="session",
            name="merge_intent",
            field=models.CharField(blank=True, db_default="", default="", max_length=300),
        ),
        migrations.AddField(
            model_name="session",
            name="merge_into",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="agent_sessions.session",
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="merged_into",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="merged",
                to="agent_sessions.session",
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="said",
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
        ),
        migrations.AddField(
            model_name="session",
            name="waiting_on",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("branched_from__isnull", True),
                    models.Q(("branched_from", models.F("id")), _negated=True),
                    _connector="OR",
                ),
                name="session_is_not_branched_from_itself",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("merge_into__isnull", True),
                        models.Q(("merge_into", models.F("id")), _negated=True),
                        _connector="OR",
                    ),
                    models.Q(
                        ("merged_into__isnull", True),
                        models.Q(("merged_into", models.F("id")), _negated=True),
                        _connector="OR",
                    ),
                ),
                name="session_does_not_merge_into_itself",
            ),
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="project",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="agent_sessions.project",
            ),
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="session",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="checkpoints",
                to="agent_sessions.session",
            ),
        ),
        migrations.AddField(
            model_name="decision",
            name="project",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="agent_sessions.project",
            ),
        ),
        migrations.AddField(
            model_name="decision",
            name="session",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="decisions",
                to="agent_sessions.session",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="accepted_by",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="agent_sessions.agent",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="project",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="agent_sessions.project",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="session",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="handoffs",
                to="agent_sessions.session",
            ),
        ),
        migrations.AddField(
            model_name="handoff",
            name="written_by",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="agent_sessions.agent",
            ),
        ),
        migrations.AddField(
            model_name="observedfact",
            name="project",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="agent_sessions.project",
            ),
        ),
        migrations.AddField(
            model_name="observedfact",
            name="session",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="facts",
                to="agent_sessions.session",
            ),
        ),
        migrations.AddIndex(
            model_name="checkpoint",
            index=models.Index(fields=["session", "opened_position"], name="checkpoint_by_session"),
        ),
        migrations.AddConstraint(
            model_name="checkpoint",
            constraint=models.CheckConstraint(
                condition=models.Q(("size__gte", 0)), name="checkpoint_size_is_not_negative"
            ),
        ),
        migrations.AddIndex(
            model_name="decision",
            index=models.Index(fields=["session", "opened_position"], name="decision_by_session"),
        ),
        migrations.AddIndex(
            model_name="decision",
            index=models.Index(condition=models.Q(("status", "open")), fields=["session"], name="decision_open"),
        ),
        migrations.AddConstraint(
            model_name="decision",
            constraint=models.UniqueConstraint(fields=("session", "key"), name="decision_key_is_unique_in_session"),
        ),
        migrations.AddConstraint(
            model_name="decision",
            constraint=models.CheckConstraint(
                condition=models.Q(("key", ""), _negated=True), name="decision_has_a_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="decision",
            constraint=models.CheckConstraint(
                condition=models.Q(("status__in", ("open", "done", "failed", "abandoned"))),
                name="decision_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="decision",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("concluded_position__isnull", True), ("status", "open")),
                    models.Q(models.Q(("status", "open"), _negated=True), ("concluded_position__isnull", False)),
                    _connector="OR",
                ),
                name="decision_is_concluded_by_a_fact",
            ),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(fields=["session", "opened_position"], name="handoff_by_session"),
        ),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(
                condition=models.Q(("accept_by_us__isnull", False)), fields=["accept_by_us"], name="handoff_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.UniqueConstraint(fields=("session", "key"), name="handoff_key_is_unique_in_session"),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.CheckConstraint(condition=models.Q(("key", ""), _negated=True), name="handoff_has_a_key"),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.CheckConstraint(
                condition=models.Q(("size__gte", 0)), name="handoff_size_is_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="handoff",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("accepted_at_us__isnull", True), ("accepted_mark", "")),
                    models.Q(
                        models.Q(("accepted_mark", ""), _negated=True),
                        ("accept_by_us__isnull", True),
                        ("accepted_at_us__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="handoff_is_accepted_by_a_fact",
            ),
        ),
        migrations.AddIndex(
            model_name="observedfact",
            index=models.Index(fields=["session", "opened_position"], name="fact_by_session"),
        ),
        migrations.AddConstraint(
            model_name="observedfact",
            constraint=models.UniqueConstraint(
                fields=("session", "name", "source"), name="fact_is_told_once_per_source"
            ),
        ),
        migrations.AddConstraint(
            model_name="observedfact",
            constraint=models.CheckConstraint(
                condition=models.Q(models.Q(("name", ""), _negated=True), models.Q(("source", ""), _negated=True)),
                name="fact_has_a_name_and_a_source",
            ),
        ),
    ]
