"""Index failed effects by agent and time, for the pages of agents."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0009_effect_by_agent")]

    operations = [
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                condition=models.Q(("state", "failed")),
                fields=["agent", "received_us", "tool", "outcome", "state"],
                name="effect_failed_by_agent",
            ),
        ),
    ]
