"""Index effects by agent, tool and time, for the pages of agents."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0008_tool_declared_position")]

    operations = [
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(fields=["agent", "tool", "received_us"], name="effect_by_agent"),
        ),
    ]
