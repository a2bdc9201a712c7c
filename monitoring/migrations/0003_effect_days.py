"""Counts of effects by agent, tool and day."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def count_again(apps: Any, _editor: Any) -> None:
    """Let the job count all effects again, by hour and by day."""
    apps.get_model("monitoring", "EffectHour").objects.all().delete()
    apps.get_model("monitoring", "JobHeartbeat").objects.filter(name="counts").update(position=0)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_initial"),
        ("monitoring", "0002_effect_hours"),
    ]

    operations = [
        migrations.CreateModel(
            name="EffectDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tool", models.CharField(blank=True, default="", max_length=100)),
                ("day_us", models.BigIntegerField()),
                ("effects", models.BigIntegerField()),
                (
                    "agent",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.agent",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["project", "day_us"], name="effect_day_by_project")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "agent", "tool", "day_us"),
                        name="effect_day_is_counted_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("effects__gte", 1)), name="effect_day_has_effects"
                    ),
                ],
            },
        ),
        migrations.RunPython(count_again, migrations.RunPython.noop),
    ]
