"""Index effects that ended in an error by agent and time, and bad outcomes with their tool.

The pages of agents and tools count in these indexes and fetch no row.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0010_failed_by_agent")]

    operations = [
        migrations.RemoveIndex(model_name="effect", name="effect_failed_by_agent"),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                condition=models.Q(("outcome", "error")),
                fields=["agent", "received_us", "tool", "state"],
                name="effect_error_by_agent",
            ),
        ),
        migrations.RemoveIndex(model_name="effect", name="effect_by_bad_outcome"),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                condition=models.Q(("outcome__in", ["error", "unknown"])),
                fields=["project", "outcome", "opened_position", "state", "tool"],
                name="effect_by_bad_outcome",
            ),
        ),
    ]
