from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_sessions", "0004_messages"),
        ("ledger", "0004_open_intent"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="tool",
            name="tool_breaker_is_whole",
        ),
        migrations.AddConstraint(
            model_name="tool",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("breaker_failures__isnull", True), ("breaker_pause_s__isnull", True)),
                    models.Q(
                        ("breaker_failures__gt", 0),
                        ("breaker_failures__isnull", False),
                        ("breaker_pause_s__gt", 0),
                        ("breaker_pause_s__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="tool_breaker_is_whole",
            ),
        ),
    ]
