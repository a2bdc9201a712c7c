"""People to whom a request is assigned, or whom a comment mentions."""

import db.ids
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_initial"),
        ("approvals", "0003_undone_reason"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Addressee",
            fields=[
                (
                    "id",
                    models.UUIDField(default=db.ids.new_uuid7, primary_key=True, serialize=False),
                ),
                ("relation", models.CharField(max_length=9)),
                ("position", models.BigIntegerField()),
                (
                    "gate",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="addressees",
                        to="approvals.gate",
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
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("gate", "user", "relation"), name="person_is_addressed_once"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("relation", "assigned")),
                        fields=("gate",),
                        name="gate_is_assigned_to_one_person",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("relation__in", ("assigned", "mentioned"))),
                        name="addressee_relation_is_known",
                    ),
                ],
            },
        ),
    ]
