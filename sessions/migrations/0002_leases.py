import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0001_initial")]

    operations = [
        migrations.AddField(model_name="session", name="fence", field=models.BigIntegerField(null=True)),
        migrations.AddField(model_name="session", name="start_by_us", field=models.BigIntegerField(null=True)),
        migrations.AddField(model_name="session", name="resumes", field=models.IntegerField(db_default=0, default=0)),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("start_by_us__isnull", False)), fields=["start_by_us"], name="session_by_start"
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("project"),
                models.OrderBy(models.F("priority"), descending=True),
                models.F("opened_position"),
                condition=models.Q(
                    ("created_mark__gte", "0"), ("created_mark__lt", "1"), ("state__in", ["pending", "running"])
                ),
                name="task_by_priority",
            ),
        ),
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=8)),
                ("subject", models.CharField(max_length=300)),
                ("process", models.CharField(max_length=64)),
                ("epoch", models.BigIntegerField(default=1)),
                ("ttl_s", models.BigIntegerField()),
                ("acquired_at_us", models.BigIntegerField()),
                ("beat_at_us", models.BigIntegerField()),
                ("progress_at_us", models.BigIntegerField()),
                ("progress_token", models.CharField(blank=True, default="", max_length=200)),
                ("quiet_until_us", models.BigIntegerField(null=True)),
                ("expires_at_us", models.BigIntegerField()),
                ("released_at_us", models.BigIntegerField(null=True)),
                ("silent_since_us", models.BigIntegerField(null=True)),
                ("dead_at_us", models.BigIntegerField()),
                ("wedged_at_us", models.BigIntegerField()),
                ("takeovers", models.IntegerField(default=0)),
                ("version", models.IntegerField(default=1)),
                ("opened_position", models.BigIntegerField()),
                (
                    "agent",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.agent",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="leases",
                        to="agent_sessions.session",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="leases",
                        to="agent_sessions.task",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["session"], name="lease_by_session"),
                    models.Index(fields=["project", "opened_position"], name="lease_by_opening"),
                    models.Index(condition=models.Q(("task__isnull", False)), fields=["task"], name="lease_by_task"),
                    models.Index(
                        condition=models.Q(("kind", "session"), ("released_at_us__isnull", True)),
                        fields=["expires_at_us"],
                        name="lease_by_expiry",
                    ),
                    models.Index(
                        condition=models.Q(("released_at_us__isnull", True)),
                        fields=["dead_at_us"],
                        name="lease_by_death",
                    ),
                    models.Index(
                        condition=models.Q(("released_at_us__isnull", True)),
                        fields=["wedged_at_us"],
                        name="lease_by_wedging",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "kind", "subject"), name="lease_is_one_per_subject"),
                    models.CheckConstraint(
                        condition=models.Q(("kind__one_of", ("session", "task", "resource"))),
                        name="lease_kind_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("subject", ""), _negated=True), models.Q(("process", ""), _negated=True)
                        ),
                        name="lease_names_subject_and_process",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "session"), ("session__isnull", False), ("task__isnull", True)),
                            models.Q(("kind", "task"), ("session__isnull", False), ("task__isnull", False)),
                            models.Q(("kind", "resource"), ("session__isnull", True), ("task__isnull", True)),
                            _connector="OR",
                        ),
                        name="lease_is_on_what_its_kind_says",
                    ),
                    models.CheckConstraint(condition=models.Q(("epoch__gte", 1)), name="lease_epoch_begins_at_one"),
                    models.CheckConstraint(
                        condition=models.Q(("ttl_s__gte", 5), ("ttl_s__lte", 3600)),
                        name="lease_lasts_seconds_to_an_hour",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("dead_at_us__gte", models.F("expires_at_us")),
                            ("expires_at_us__gte", models.F("beat_at_us")),
                        ),
                        name="lease_expires_before_it_is_dead",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BeatMinute",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute", models.IntegerField()),
                ("beats", models.IntegerField(default=0)),
                ("progresses", models.IntegerField(default=0)),
                (
                    "lease",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="minutes",
                        to="agent_sessions.lease",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["minute"], name="beat_minute_by_time")],
                "constraints": [
                    models.UniqueConstraint(fields=("lease", "minute"), name="beat_minute_is_counted_once"),
                    models.CheckConstraint(
                        condition=models.Q(("beats__gte", 0), ("progresses__gte", 0)), name="beat_minute_counts_up"
                    ),
                ],
            },
        ),
    ]
