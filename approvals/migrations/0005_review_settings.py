"""Reviewers' own settings: absence and daily digest."""

import db.ids
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_initial"),
        ("approvals", "0004_addressees"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ReviewSettings",
            fields=[
                (
                    "id",
                    models.UUIDField(default=db.ids.new_uuid7, primary_key=True, serialize=False),
                ),
                ("away_from_us", models.BigIntegerField(null=True)),
                ("away_until_us", models.BigIntegerField(null=True)),
                ("digest_hour", models.SmallIntegerField(null=True)),
                ("digest_address", models.CharField(blank=True, default="", max_length=254)),
                ("digest_sent_us", models.BigIntegerField(null=True)),
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
                    "stand_in",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
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
                        fields=("project", "user"), name="member_has_one_settings"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("away_from_us__isnull", True), ("away_until_us__isnull", True)
                            ),
                            models.Q(
                                ("away_from_us__isnull", False),
                                ("away_until_us__gt", models.F("away_from_us")),
                            ),
                            _connector="OR",
                        ),
                        name="absence_ends_after_its_start",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("stand_in__isnull", True),
                            models.Q(
                                ("away_until_us__isnull", False),
                                models.Q(("stand_in", models.F("user")), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="stand_in_is_another_person",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("digest_hour__isnull", True),
                            models.Q(
                                ("digest_hour__gte", 0),
                                ("digest_hour__isnull", False),
                                ("digest_hour__lte", 23),
                                models.Q(("digest_address", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="digest_has_an_hour_and_an_address",
                    ),
                ],
            },
        ),
    ]
