"""Index effects by the id of their call."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_used_names")]

    operations = [
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                condition=models.Q(("call_id", ""), _negated=True),
                fields=["session", "call_id"],
                name="effect_by_call",
            ),
        ),
    ]
