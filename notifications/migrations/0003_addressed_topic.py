"""Notifications of people whom a comment mentions, or whom a request is assigned to."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_initial"),
        ("notifications", "0002_body_form"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="notification",
            name="notification_topic_is_known",
        ),
        migrations.AddConstraint(
            model_name="notification",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "topic__in",
                        (
                            "gate.requested",
                            "gate.unseen",
                            "gate.resolved",
                            "gate.expired",
                            "gate.addressed",
                            "session.stuck",
                            "session.recovered",
                            "alert.raised",
                            "alert.stopped",
                            "integrity",
                            "test",
                        ),
                    )
                ),
                name="notification_topic_is_known",
            ),
        ),
    ]
