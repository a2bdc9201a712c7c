import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_sessions", "0001_initial"),
        ("ledger", "0002_verdicts"),
    ]

    operations = [
        migrations.AddField(
            model_name="tool",
            name="breaker_failures",
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name="tool",
            name="breaker_pause_s",
            field=models.IntegerField(null=True),
        ),
        migrations.AddConstraint(
            model_name="tool",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("breaker_failures__isnull", True), ("breaker_pause_s__isnull", True)),
                    models.Q(("breaker_failures__gt", 0), ("breaker_pause_s__gt", 0)),
                    _connector="OR",
                ),
                name="tool_breaker_is_whole",
            ),
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
                    models.UniqueConstraint(fields=("project", "tool"), name="breaker_is_one_of_a_tool"),
                    models.CheckConstraint(
                        condition=models.Q(("failures__gte", 0)), name="breaker_failures_are_counted"
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
    ]
