from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0003_breaker"),
    ]

    operations = [
        migrations.RemoveIndex(model_name="effect", name="effect_open_intent"),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                condition=models.Q(
                    ("state__in", ("planned", "dispatched", "failed")), ("outcome", "unknown"), _connector="OR"
                ),
                fields=["session", "intent_digest"],
                name="effect_open_intent",
            ),
        ),
    ]
