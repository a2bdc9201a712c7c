import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [
        ("proofs", "0001_initial"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="treehead",
            index=models.Index(fields=["size", "id"], name="tree_head_by_size"),
        ),
        migrations.CreateModel(
            name="Anchor",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=32)),
                ("kind", models.CharField(max_length=8)),
                ("anchored_at_us", models.BigIntegerField()),
                ("receipt", models.TextField(blank=True, default="")),
                ("error", models.CharField(blank=True, default="", max_length=500)),
                (
                    "tree_head",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="proofs.treehead",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["name", "id"], name="anchor_by_name"),
                    models.Index(
                        condition=Q(error=""),
                        fields=["name", "tree_head"],
                        name="anchor_taken_by_name",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=Q(error=""),
                        fields=("tree_head", "name"),
                        name="anchor_takes_a_head_once",
                    ),
                    models.CheckConstraint(
                        condition=Q(error="", receipt__gt="") | (Q(receipt="") & ~Q(error="")),
                        name="anchor_has_a_receipt_or_an_error",
                    ),
                    models.CheckConstraint(
                        condition=Q(kind__in=["file", "git", "syslog", "webhook", "witness"]),
                        name="anchor_kind_is_known",
                    ),
                ],
            },
        ),
    ]
