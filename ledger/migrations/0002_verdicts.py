from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]

    operations = [
        migrations.AddField("attempt", "replaces", models.IntegerField(null=True)),
        migrations.AddField("attempt", "verdict_row", models.CharField(blank=True, default="", max_length=3)),
        migrations.AddField("effect", "undoes", models.IntegerField(null=True)),
        migrations.AddField("effect", "undone", models.IntegerField(default=0)),
        migrations.AddField("tool", "key_window_s", models.IntegerField(default=0)),
        migrations.AddField("tool", "max_attempts", models.IntegerField(default=3)),
        migrations.AddField("tool", "max_probes", models.IntegerField(default=5)),
        migrations.AddField("tool", "probe", models.BooleanField(default=False)),
        migrations.AddField("tool", "undo", models.CharField(blank=True, default="", max_length=9)),
        migrations.AddIndex(
            "effect",
            models.Index(
                condition=models.Q(("resource", ""), _negated=True),
                fields=["project", "resource", "opened_position"],
                name="effect_by_resource",
            ),
        ),
        migrations.AddConstraint(
            "attempt",
            models.CheckConstraint(
                condition=models.Q(
                    models.Q(("replaces__isnull", True), ("verdict_row", "")),
                    models.Q(
                        ("lane", "command"),
                        ("replaces", models.F("number") - 1),
                        ("verdict_row__one_of", ("13", "14", "15", "17", "18", "19", "21")),
                    ),
                    _connector="OR",
                ),
                name="attempt_replaces_by_a_row_of_the_table",
            ),
        ),
        migrations.AddConstraint(
            "effect",
            models.CheckConstraint(
                condition=models.Q(
                    ("undoes__isnull", True),
                    models.Q(("compensates__isnull", False), ("undoes__gte", 0)),
                    _connector="OR",
                ),
                name="effect_undoes_what_it_compensates",
            ),
        ),
        migrations.AddConstraint(
            "effect",
            models.CheckConstraint(condition=models.Q(("undone__gte", 0)), name="effect_undone_attempts_are_counted"),
        ),
        migrations.AddConstraint(
            "tool",
            models.CheckConstraint(
                condition=models.Q(("key_window_s__gte", 0), ("max_attempts__gte", 1), ("max_probes__gte", 1)),
                name="tool_window_and_counts_are_numbers",
            ),
        ),
        migrations.AddConstraint(
            "tool",
            models.CheckConstraint(
                condition=models.Q(("undo__in", ("", "key", "reference"))), name="tool_undo_is_known"
            ),
        ),
    ]
