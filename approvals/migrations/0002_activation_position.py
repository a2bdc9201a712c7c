"""Give each activation the journal position of its policy.activated."""

from typing import Any

from django.db import migrations, models


def fill_positions(apps: Any, _schema_editor: Any) -> None:
    """Match the activations of a project with their entries, in their order.

    Every activation wrote one entry. Where the numbers differ, the positions stay unknown.
    """
    activation_model = apps.get_model("approvals", "Activation")
    entry_model = apps.get_model("journal", "Entry")
    for project in activation_model.objects.values_list("project", flat=True).distinct():
        identities = activation_model.objects.filter(project=project).order_by("id")
        entries = entry_model.objects.filter(
            project=project, kind="policy.activated", lane="system"
        )
        keys = list(identities.values_list("id", "policy_set"))
        places = list(entries.order_by("position").values_list("position", "subject"))
        if [key[1] for key in keys] == [place[1] for place in places]:
            for (identity, _), (position, _) in zip(keys, places, strict=True):
                activation_model.objects.filter(id=identity).update(position=position)


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0001_initial"),
        ("journal", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="activation",
            name="position",
            field=models.BigIntegerField(null=True),
        ),
        migrations.RunPython(fill_positions, migrations.RunPython.noop, elidable=True),
    ]
