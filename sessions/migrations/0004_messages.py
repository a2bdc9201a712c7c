import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("agent_sessions", "0003_working_state"),
    ]

    operations = [
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "recipient",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.agent",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.session",
                    ),
                ),
                (
                    "from_agent",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.agent",
                    ),
                ),
                (
                    "from_user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "in_reply_to",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.message",
                    ),
                ),
                ("size", models.IntegerField()),
                ("opened_position", models.BigIntegerField()),
                ("sent_at_us", models.BigIntegerField()),
                ("read_at_us", models.BigIntegerField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["project", "recipient", "opened_position"], name="message_by_box"),
                    models.Index(fields=["project", "opened_position"], name="message_by_opening"),
                    models.Index(
                        condition=models.Q(("in_reply_to__isnull", False)),
                        fields=["in_reply_to"],
                        name="message_by_reply",
                    ),
                    models.Index(
                        condition=models.Q(("read_at_us__isnull", True), ("recipient__isnull", False)),
                        fields=["recipient", "opened_position"],
                        name="message_unread",
                    ),
                    models.Index(
                        condition=models.Q(("session__isnull", False)),
                        fields=["session", "opened_position"],
                        name="message_by_session",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("from_agent__isnull", True), ("from_user__isnull", True), _connector="OR"),
                        name="message_has_one_sender",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("recipient__isnull", False), ("read_at_us__isnull", True), _connector="OR"),
                        name="message_to_all_is_read_by_each",
                    ),
                    models.CheckConstraint(condition=models.Q(("size__gte", 0)), name="message_size_is_not_negative"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Reading",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "message",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="readings",
                        to="agent_sessions.message",
                    ),
                ),
                (
                    "agent",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.agent",
                    ),
                ),
                ("read_at_us", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("message", "agent"), name="message_is_read_once_by_each")
                ],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "message",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.message",
                    ),
                ),
                ("directory", models.UUIDField()),
                ("file", models.CharField(max_length=255)),
                ("ended_at_us", models.BigIntegerField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("ended_at_us__isnull", True)),
                        fields=["directory", "id"],
                        name="delivery_open",
                    ),
                    models.Index(fields=["directory", "file"], name="delivery_by_file"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("directory", "message"), name="delivery_is_one_file_of_a_directory"
                    ),
                    models.CheckConstraint(condition=models.Q(("file", ""), _negated=True), name="delivery_has_a_file"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Capacity",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "agent",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.agent",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.session",
                    ),
                ),
                ("context_left_tokens", models.BigIntegerField(null=True)),
                ("context_total_tokens", models.BigIntegerField(null=True)),
                ("time_left_s", models.BigIntegerField(null=True)),
                ("queue", models.BigIntegerField(null=True)),
                ("reported_at_us", models.BigIntegerField()),
                ("position", models.BigIntegerField()),
                ("paced_from_us", models.BigIntegerField(null=True)),
                ("paced_until_us", models.BigIntegerField(null=True)),
                ("pace_reason", models.CharField(blank=True, default="", max_length=16)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("paced_until_us__isnull", False)),
                        fields=["agent", "paced_until_us"],
                        name="capacity_paced",
                    ),
                    models.Index(fields=["project", "reported_at_us"], name="capacity_by_time"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("session__isnull", False)),
                        fields=("agent", "session"),
                        name="capacity_is_one_of_a_session",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("session__isnull", True)),
                        fields=("agent",),
                        name="capacity_is_one_of_an_agent",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("pace_reason__in", ("", "context", "time", "queue"))),
                        name="capacity_paces_for_a_known_reason",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("pace_reason", ""), ("paced_from_us__isnull", True), ("paced_until_us__isnull", True)
                            ),
                            models.Q(
                                ("paced_from_us__isnull", False),
                                ("paced_until_us__isnull", False),
                                models.Q(("pace_reason", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="capacity_paces_from_and_until",
                    ),
                ],
            },
        ),
    ]
