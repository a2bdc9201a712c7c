from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0004_call_index"),
    ]

    operations = [
        migrations.AddField(
            model_name="tool",
            name="shell",
            field=models.JSONField(blank=True, default=list),
        ),
    ]
