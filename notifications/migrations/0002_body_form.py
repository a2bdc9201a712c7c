"""Channels that receive CloudEvents."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("notifications", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="notificationchannel",
            name="body_form",
            field=models.CharField(default="plain", max_length=11),
        ),
        migrations.AddConstraint(
            model_name="notificationchannel",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("body_form", "plain"),
                    models.Q(("body_form", "cloudevents"), ("kind", "webhook")),
                    _connector="OR",
                ),
                name="notification_channel_form_is_known",
            ),
        ),
    ]
