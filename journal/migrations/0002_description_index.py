"""Index the entries that describe a session."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("journal", "0001_initial")]

    operations = [
        migrations.AddIndex(
            model_name="entry",
            index=models.Index(
                condition=models.Q(("kind__in", ["session.started", "session.described"])),
                fields=["session", "position"],
                name="entry_of_description",
            ),
        ),
    ]
