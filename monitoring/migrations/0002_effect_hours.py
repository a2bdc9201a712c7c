"""Counts of effects by hour."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_initial"),
        ("monitoring", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="EffectHour",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("hour_us", models.BigIntegerField()),
                ("effects", models.BigIntegerField()),
                ("first_position", models.BigIntegerField()),
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
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "hour_us"), name="effect_hour_is_counted_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("effects__gte", 1), ("first_position__gte", 1)),
                        name="effect_hour_has_effects",
                    ),
                ],
            },
        ),
    ]
