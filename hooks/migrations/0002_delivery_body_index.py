"""Index deliveries by their body, which may be sent again under another id."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hooks", "0001_initial")]

    operations = [
        migrations.AddIndex(
            model_name="codehostdelivery",
            index=models.Index(fields=["source", "body_digest"], name="code_host_delivery_by_body"),
        ),
    ]
