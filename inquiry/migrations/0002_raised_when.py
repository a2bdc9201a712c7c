from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_sessions", "0004_messages"),
        ("inquiry", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="stucktransition",
            name="stuck_is_raised_after_it_was_seen_and_in_the_journal",
        ),
        migrations.AddConstraint(
            model_name="stucktransition",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("raised_position__isnull", True), ("raised_us__isnull", True)),
                    models.Q(
                        ("raised_position__isnull", False),
                        ("raised_us__gte", models.F("seen_us")),
                        ("raised_us__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="stuck_is_raised_after_it_was_seen_and_in_the_journal",
            ),
        ),
    ]
