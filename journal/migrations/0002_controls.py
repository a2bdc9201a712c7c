from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("journal", "0001_initial"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="entry",
            index=models.Index(
                condition=models.Q(("kind", "control.fired")), fields=["session", "position"], name="entry_of_control"
            ),
        ),
    ]
