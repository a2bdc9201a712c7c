import django.db.models.deletion
import journal.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Entry",
            fields=[
                ("position", models.BigAutoField(primary_key=True, serialize=False)),
                ("project", models.UUIDField()),
                ("source", models.CharField(max_length=160)),
                ("claimed_source", models.CharField(blank=True, default="", max_length=160)),
                ("event_id", models.CharField(db_column="id", max_length=64)),
                ("kind", models.CharField(max_length=64)),
                ("session", models.UUIDField(null=True)),
                ("effect", models.UUIDField(null=True)),
                ("attempt", models.IntegerField(null=True)),
                ("subject", models.UUIDField(null=True)),
                ("actor", models.CharField(max_length=64)),
                ("lane", models.CharField(max_length=8)),
                ("lease_epoch", models.BigIntegerField(null=True)),
                ("producer_seq", models.BigIntegerField(null=True)),
                ("occurred_us", models.BigIntegerField(null=True)),
                ("received_us", models.BigIntegerField()),
                ("facts", models.TextField(default="{}")),
                ("body_commit", models.BinaryField(null=True)),
                (
                    "txid",
                    journal.fields.TransactionIdField(db_default=journal.fields.CurrentTransactionId(), null=True),
                ),
                ("schema_version", models.SmallIntegerField(default=1)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "source", "event_id"), name="entry_id_is_used_once_per_source"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("lane__one_of", ["command", "evidence", "claim", "system"])),
                        name="entry_lane_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__contains", ".")), name="entry_kind_is_subject_dot_verb"
                    ),
                    models.CheckConstraint(condition=models.Q(("event_id", ""), _negated=True), name="entry_has_an_id"),
                    models.CheckConstraint(
                        condition=models.Q(("source", ""), _negated=True), name="entry_has_a_source"
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("session__isnull", False)),
                        fields=["session", "position"],
                        name="entry_by_session",
                    ),
                    models.Index(
                        condition=models.Q(("effect__isnull", False)),
                        fields=["effect", "position"],
                        name="entry_by_effect",
                    ),
                    models.Index(fields=["received_us"], name="entry_by_received_us"),
                    models.Index(
                        condition=models.Q(("kind", "control.fired")),
                        fields=["session", "position"],
                        name="entry_of_control",
                    ),
                    models.Index(
                        condition=models.Q(("kind", "lease.acquired"), ("lane", "command")),
                        fields=["subject", "lease_epoch"],
                        name="entry_of_acquisition",
                    ),
                    models.Index(
                        condition=models.Q(
                            (
                                "kind__in",
                                ("effect.planned", "effect.dispatched", "effect.acknowledged", "effect.failed"),
                            ),
                            _negated=True,
                        ),
                        fields=["project", "kind", "position"],
                        name="entry_by_kind",
                    ),
                    models.Index(
                        condition=models.Q(("lane", "claim")), fields=["session", "effect"], name="entry_of_claim"
                    ),
                    models.Index(
                        condition=models.Q(("actor__gte", "p_"), ("actor__lt", "q")),
                        fields=["project", "actor", "position"],
                        name="entry_by_person",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Outbox",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("project", models.UUIDField()),
                (
                    "entry",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="journal.entry",
                    ),
                ),
                ("topic", models.CharField(max_length=64)),
                ("deduplication_key", models.CharField(max_length=160)),
                ("due_at_us", models.BigIntegerField()),
                ("tries", models.IntegerField(default=0)),
                ("sent_at_us", models.BigIntegerField(null=True)),
                ("last_error", models.CharField(blank=True, default="", max_length=200)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "deduplication_key"), name="outbox_says_a_thing_once"),
                    models.CheckConstraint(condition=models.Q(("tries__gte", 0)), name="outbox_tries_are_counted"),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("sent_at_us__isnull", True)), fields=["due_at_us"], name="outbox_due"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Body",
            fields=[
                (
                    "entry",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="body",
                        serialize=False,
                        to="journal.entry",
                    ),
                ),
                ("salt", models.BinaryField()),
                ("text", models.TextField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("salt__length", 32)), name="body_salt_is_32_bytes")
                ],
            },
        ),
        migrations.CreateModel(
            name="Fingerprint",
            fields=[
                ("name", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("value", models.CharField(max_length=64)),
                ("recorded_at_us", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("value__length", 64)), name="fingerprint_is_64_characters"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Erasure",
            fields=[
                (
                    "entry",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="erasure",
                        serialize=False,
                        to="journal.entry",
                    ),
                ),
                ("project", models.UUIDField()),
                ("reason", models.CharField(max_length=200)),
                ("actor", models.CharField(max_length=64)),
                ("erased_at_us", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("reason", ""), _negated=True), name="erasure_has_a_reason"
                    )
                ],
            },
        ),
    ]
