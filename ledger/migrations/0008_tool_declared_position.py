"""Give each declared tool the journal position of its project's newest load."""

from typing import Any

from django.db import migrations, models


def fill_positions(apps: Any, _schema_editor: Any) -> None:
    """Set the position of the newest admin.tools_loaded of each project; archives have none."""
    tool_model = apps.get_model("ledger", "Tool")
    entry_model = apps.get_model("journal", "Entry")
    declared = tool_model.objects.filter(project__archive=False)
    for project in declared.values_list("project", flat=True).distinct():
        loads = entry_model.objects.filter(
            project=project, kind="admin.tools_loaded", lane="system"
        ).order_by("-position")
        position = loads.values_list("position", flat=True).first()
        tool_model.objects.filter(project=project).update(declared_position=position)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_initial"),
        ("journal", "0001_initial"),
        ("ledger", "0007_policy_parts_digest"),
    ]

    operations = [
        migrations.AddField(
            model_name="tool",
            name="declared_position",
            field=models.BigIntegerField(null=True),
        ),
        migrations.RunPython(fill_positions, migrations.RunPython.noop, elidable=True),
    ]
