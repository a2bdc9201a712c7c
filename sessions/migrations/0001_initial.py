import django.db.models.deletion
import journal.ids
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Person",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("pseudonym", models.CharField(max_length=64)),
                ("theme", models.CharField(default="system", max_length=8)),
                ("clock", models.CharField(default="utc", max_length=8)),
                ("single_keys", models.BooleanField(default=True)),
                ("password_is_own", models.BooleanField(default=False)),
                ("password_given_by", models.CharField(blank=True, default="", max_length=64)),
                ("password_given_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("pseudonym",), name="person_pseudonym_is_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("theme__in", ["system", "light", "dark"])), name="person_theme_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("clock__in", ["utc", "local", "relative"])), name="person_clock_is_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=64)),
                ("redacts", models.BooleanField(default=True)),
                ("archive", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="project_name_is_unique"),
                    models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="project_has_a_name"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Agent",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="agents", to="agent_sessions.project"
                    ),
                ),
                ("name", models.CharField(max_length=64)),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="owned_agents",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("team", models.CharField(blank=True, default="", max_length=64)),
                ("charter", models.TextField(blank=True, default="")),
                ("charter_version", models.IntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "name"), name="agent_name_is_unique_in_project"),
                    models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="agent_has_a_name"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="memberships",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("role", models.CharField(max_length=16)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "user"), name="membership_is_one_per_person"),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ("viewer", "reviewer", "operator", "administrator"))),
                        name="membership_role_is_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                ("role", models.CharField(max_length=16)),
                ("invited_by", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="invitations",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="invitations",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "user"), name="invitation_is_one_per_person"),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ("viewer", "reviewer", "operator", "administrator"))),
                        name="invitation_role_is_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AgentToken",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="tokens", to="agent_sessions.project"
                    ),
                ),
                (
                    "agent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="tokens", to="agent_sessions.agent"
                    ),
                ),
                ("public_id", models.CharField(max_length=8)),
                ("digest", models.BinaryField()),
                ("scope", models.CharField(default="agent", max_length=8)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                ("used_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("public_id",), name="token_public_id_is_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ("agent", "import", "audit"))), name="token_scope_is_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Repository",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="repositories",
                        to="agent_sessions.project",
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("production_refs", models.TextField(blank=True, default="main\nmaster\nproduction")),
                ("protected_refs", models.TextField(blank=True, default="release/*")),
                ("patterns_version", models.IntegerField(default=1)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "verbose_name_plural": "repositories",
                "constraints": [
                    models.UniqueConstraint(fields=("project", "name"), name="repository_name_is_unique_in_project"),
                    models.CheckConstraint(
                        condition=models.Q(("name", ""), _negated=True), name="repository_has_a_name"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sessions",
                        to="agent_sessions.project",
                    ),
                ),
                ("key", models.CharField(max_length=200)),
                (
                    "agent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="sessions", to="agent_sessions.agent"
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="owned_sessions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "on_behalf_of",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "repository",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sessions",
                        to="agent_sessions.repository",
                    ),
                ),
                ("branch", models.CharField(blank=True, default="", max_length=200)),
                (
                    "parent",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="agent_sessions.session",
                    ),
                ),
                (
                    "branched_from",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="branches",
                        to="agent_sessions.session",
                    ),
                ),
                (
                    "merge_into",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.session",
                    ),
                ),
                ("merge_intent", models.CharField(blank=True, db_default="", default="", max_length=300)),
                (
                    "merged_into",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="merged",
                        to="agent_sessions.session",
                    ),
                ),
                ("title", models.CharField(blank=True, default="", max_length=300)),
                ("mode", models.CharField(default="reported", max_length=8)),
                ("status", models.CharField(default="running", max_length=9)),
                ("waiting_on", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("cursor", models.CharField(blank=True, default="", max_length=200)),
                ("labels", models.JSONField(default=dict)),
                ("opened_position", models.BigIntegerField()),
                ("effect_count", models.IntegerField(default=0)),
                ("created_at_us", models.BigIntegerField()),
                ("seen_at_us", models.BigIntegerField()),
                ("started_at_us", models.BigIntegerField(null=True)),
                ("ended_at_us", models.BigIntegerField(null=True)),
                ("started_mark", models.CharField(blank=True, default="", max_length=260)),
                ("status_mark", models.CharField(blank=True, default="", max_length=260)),
                ("said", models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ("fence", models.BigIntegerField(null=True)),
                ("start_by_us", models.BigIntegerField(null=True)),
                ("resumes", models.IntegerField(db_default=0, default=0)),
                ("version", models.IntegerField(default=1)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "key"), name="session_key_is_unique_in_project"),
                    models.CheckConstraint(condition=models.Q(("key", ""), _negated=True), name="session_has_a_key"),
                    models.CheckConstraint(
                        condition=models.Q(("mode__one_of", ("leased", "reported", "one_shot"))),
                        name="session_mode_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("status__one_of", ("running", "waiting", "suspended", "completed", "failed", "cancelled"))
                        ),
                        name="session_status_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("parent__isnull", True),
                            models.Q(("parent", models.F("id")), _negated=True),
                            _connector="OR",
                        ),
                        name="session_is_not_its_own_parent",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("branched_from__isnull", True),
                            models.Q(("branched_from", models.F("id")), _negated=True),
                            _connector="OR",
                        ),
                        name="session_is_not_branched_from_itself",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("merge_into__isnull", True),
                                models.Q(("merge_into", models.F("id")), _negated=True),
                                _connector="OR",
                            ),
                            models.Q(
                                ("merged_into__isnull", True),
                                models.Q(("merged_into", models.F("id")), _negated=True),
                                _connector="OR",
                            ),
                        ),
                        name="session_does_not_merge_into_itself",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("effect_count__gte", 0)), name="session_effects_are_counted"
                    ),
                ],
                "indexes": [
                    models.Index(fields=["project", "opened_position"], name="session_by_opening"),
                    models.Index(
                        condition=models.Q(("start_by_us__isnull", False)),
                        fields=["start_by_us"],
                        name="session_by_start",
                    ),
                ],
            },
        ),
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
            name="ObservedFact",
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
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="facts",
                        to="agent_sessions.session",
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("source", models.CharField(max_length=160)),
                ("digest", models.CharField(max_length=32)),
                ("mark", models.CharField(max_length=260)),
                ("position", models.BigIntegerField()),
                ("opened_position", models.BigIntegerField()),
                ("observed_at_us", models.BigIntegerField()),
                ("fresh_until_us", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("session", "name", "source"), name="fact_is_told_once_per_source"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("name", ""), _negated=True), models.Q(("source", ""), _negated=True)
                        ),
                        name="fact_has_a_name_and_a_source",
                    ),
                ],
                "indexes": [models.Index(fields=["session", "opened_position"], name="fact_by_session")],
            },
        ),
        migrations.CreateModel(
            name="Handoff",
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
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="handoffs",
                        to="agent_sessions.session",
                    ),
                ),
                ("key", models.CharField(max_length=300)),
                ("size", models.IntegerField(default=0)),
                ("waits_on", models.JSONField(default=list)),
                (
                    "written_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.agent",
                    ),
                ),
                (
                    "accepted_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.agent",
                    ),
                ),
                ("written_position", models.BigIntegerField(null=True)),
                ("written_mark", models.CharField(blank=True, default="", max_length=260)),
                ("accepted_mark", models.CharField(blank=True, default="", max_length=260)),
                ("opened_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
                ("accept_by_us", models.BigIntegerField(null=True)),
                ("accepted_at_us", models.BigIntegerField(null=True)),
                ("version", models.IntegerField(default=1)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("session", "key"), name="handoff_key_is_unique_in_session"),
                    models.CheckConstraint(condition=models.Q(("key", ""), _negated=True), name="handoff_has_a_key"),
                    models.CheckConstraint(condition=models.Q(("size__gte", 0)), name="handoff_size_is_not_negative"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("accepted_at_us__isnull", True), ("accepted_mark", "")),
                            models.Q(
                                models.Q(("accepted_mark", ""), _negated=True),
                                ("accept_by_us__isnull", True),
                                ("accepted_at_us__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="handoff_is_accepted_by_a_fact",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["session", "opened_position"], name="handoff_by_session"),
                    models.Index(
                        condition=models.Q(("accept_by_us__isnull", False)), fields=["accept_by_us"], name="handoff_due"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Decision",
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
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="decisions",
                        to="agent_sessions.session",
                    ),
                ),
                ("key", models.CharField(max_length=200)),
                ("effect", models.UUIDField(null=True)),
                ("status", models.CharField(default="open", max_length=9)),
                ("recorded_position", models.BigIntegerField(null=True)),
                ("concluded_position", models.BigIntegerField(null=True)),
                ("recorded_mark", models.CharField(blank=True, default="", max_length=260)),
                ("concluded_mark", models.CharField(blank=True, default="", max_length=260)),
                ("opened_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
                ("concluded_at_us", models.BigIntegerField(null=True)),
                ("version", models.IntegerField(default=1)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("session", "key"), name="decision_key_is_unique_in_session"),
                    models.CheckConstraint(condition=models.Q(("key", ""), _negated=True), name="decision_has_a_key"),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ("open", "done", "failed", "abandoned"))),
                        name="decision_status_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("concluded_position__isnull", True), ("status", "open")),
                            models.Q(
                                models.Q(("status", "open"), _negated=True), ("concluded_position__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        name="decision_is_concluded_by_a_fact",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["session", "opened_position"], name="decision_by_session"),
                    models.Index(condition=models.Q(("status", "open")), fields=["session"], name="decision_open"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Checkpoint",
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
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="checkpoints",
                        to="agent_sessions.session",
                    ),
                ),
                ("cache_keys", models.JSONField(default=list)),
                ("cursor", models.CharField(blank=True, default="", max_length=200)),
                ("pins", models.JSONField(default=dict)),
                ("size", models.IntegerField()),
                ("mark", models.CharField(max_length=260)),
                ("opened_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("size__gte", 0)), name="checkpoint_size_is_not_negative")
                ],
                "indexes": [models.Index(fields=["session", "opened_position"], name="checkpoint_by_session")],
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("paced_until_us__isnull", False)),
                        fields=["agent", "paced_until_us"],
                        name="capacity_paced",
                    ),
                    models.Index(fields=["project", "reported_at_us"], name="capacity_by_time"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Artifact",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="artifacts",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="artifacts",
                        to="agent_sessions.session",
                    ),
                ),
                ("effect", models.UUIDField(null=True)),
                ("type", models.CharField(max_length=64)),
                ("name", models.CharField(blank=True, default="", max_length=300)),
                ("uri", models.CharField(blank=True, default="", max_length=2000)),
                ("sha256", models.CharField(max_length=64)),
                ("size", models.BigIntegerField()),
                ("media_type", models.CharField(max_length=100)),
                ("retention", models.CharField(default="standard", max_length=32)),
                ("stored_at_us", models.BigIntegerField(null=True)),
                ("opened_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("sha256__length", 64)), name="artifact_hash_is_sha256"),
                    models.CheckConstraint(condition=models.Q(("size__gte", 0)), name="artifact_size_is_not_negative"),
                ],
                "indexes": [
                    models.Index(fields=["session", "opened_position"], name="artifact_by_session"),
                    models.Index(
                        condition=models.Q(("effect__isnull", False)), fields=["effect"], name="artifact_by_effect"
                    ),
                    models.Index(fields=["project", "opened_position"], name="artifact_by_opening"),
                    models.Index(fields=["project", "sha256"], name="artifact_by_hash"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tasks",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tasks",
                        to="agent_sessions.session",
                    ),
                ),
                ("key", models.CharField(max_length=200)),
                (
                    "parent",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="agent_sessions.task",
                    ),
                ),
                ("title", models.CharField(blank=True, default="", max_length=300)),
                ("state", models.CharField(default="pending", max_length=9)),
                ("priority", models.IntegerField(default=0)),
                ("worker", models.CharField(blank=True, default="", max_length=100)),
                ("branch_label", models.CharField(blank=True, default="", max_length=200)),
                ("opened_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
                ("updated_at_us", models.BigIntegerField()),
                ("done_at_us", models.BigIntegerField(null=True)),
                ("created_mark", models.CharField(blank=True, default="", max_length=260)),
                ("said", models.JSONField(default=dict)),
                ("done_mark", models.CharField(blank=True, default="", max_length=260)),
                ("version", models.IntegerField(default=1)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("session", "key"), name="task_key_is_unique_in_session"),
                    models.CheckConstraint(condition=models.Q(("key", ""), _negated=True), name="task_has_a_key"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ("pending", "running", "blocked", "done", "failed", "cancelled"))
                        ),
                        name="task_state_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("done_mark", ""), _negated=True),
                            models.Q(("state", "done"), _negated=True),
                            _connector="OR",
                        ),
                        name="task_is_done_by_a_fact",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["project", "opened_position"], name="task_by_opening"),
                    models.Index(
                        models.F("project"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("opened_position"),
                        condition=models.Q(
                            ("created_mark__gte", "0"), ("created_mark__lt", "1"), ("state__in", ["pending", "running"])
                        ),
                        name="task_by_priority",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Lease",
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
                ("kind", models.CharField(max_length=8)),
                ("subject", models.CharField(max_length=300)),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="leases",
                        to="agent_sessions.session",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="leases",
                        to="agent_sessions.task",
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
                ("process", models.CharField(max_length=64)),
                ("epoch", models.BigIntegerField(default=1)),
                ("ttl_s", models.BigIntegerField()),
                ("acquired_at_us", models.BigIntegerField()),
                ("beat_at_us", models.BigIntegerField()),
                ("progress_at_us", models.BigIntegerField()),
                ("progress_token", models.CharField(blank=True, default="", max_length=200)),
                ("quiet_until_us", models.BigIntegerField(null=True)),
                ("expires_at_us", models.BigIntegerField()),
                ("released_at_us", models.BigIntegerField(null=True)),
                ("silent_since_us", models.BigIntegerField(null=True)),
                ("dead_at_us", models.BigIntegerField()),
                ("wedged_at_us", models.BigIntegerField()),
                ("takeovers", models.IntegerField(default=0)),
                ("version", models.IntegerField(default=1)),
                ("opened_position", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "kind", "subject"), name="lease_is_one_per_subject"),
                    models.CheckConstraint(
                        condition=models.Q(("kind__one_of", ("session", "task", "resource"))),
                        name="lease_kind_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("subject", ""), _negated=True), models.Q(("process", ""), _negated=True)
                        ),
                        name="lease_names_subject_and_process",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "session"), ("session__isnull", False), ("task__isnull", True)),
                            models.Q(("kind", "task"), ("session__isnull", False), ("task__isnull", False)),
                            models.Q(("kind", "resource"), ("session__isnull", True), ("task__isnull", True)),
                            _connector="OR",
                        ),
                        name="lease_is_on_what_its_kind_says",
                    ),
                    models.CheckConstraint(condition=models.Q(("epoch__gte", 1)), name="lease_epoch_begins_at_one"),
                    models.CheckConstraint(
                        condition=models.Q(("ttl_s__gte", 5), ("ttl_s__lte", 3600)),
                        name="lease_lasts_seconds_to_an_hour",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("dead_at_us__gte", models.F("expires_at_us")),
                            ("expires_at_us__gte", models.F("beat_at_us")),
                        ),
                        name="lease_expires_before_it_is_dead",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["session"], name="lease_by_session"),
                    models.Index(fields=["project", "opened_position"], name="lease_by_opening"),
                    models.Index(condition=models.Q(("task__isnull", False)), fields=["task"], name="lease_by_task"),
                    models.Index(
                        condition=models.Q(("kind", "session"), ("released_at_us__isnull", True)),
                        fields=["expires_at_us"],
                        name="lease_by_expiry",
                    ),
                    models.Index(
                        condition=models.Q(("released_at_us__isnull", True)),
                        fields=["dead_at_us"],
                        name="lease_by_death",
                    ),
                    models.Index(
                        condition=models.Q(("released_at_us__isnull", True)),
                        fields=["wedged_at_us"],
                        name="lease_by_wedging",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Item",
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
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="items",
                        to="agent_sessions.task",
                    ),
                ),
                ("key", models.CharField(max_length=200)),
                ("state", models.CharField(default="pending", max_length=7)),
                ("mark", models.CharField(blank=True, default="", max_length=260)),
                ("changed_at_us", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("task", "key"), name="item_key_is_unique_in_task"),
                    models.CheckConstraint(condition=models.Q(("key", ""), _negated=True), name="item_has_a_key"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ("pending", "done", "failed"))), name="item_state_is_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Team",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="teams", to="agent_sessions.project"
                    ),
                ),
                ("name", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "name"), name="team_name_is_unique_in_project"),
                    models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="team_has_a_name"),
                ],
            },
        ),
        migrations.CreateModel(
            name="TeamMember",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
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
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="members", to="agent_sessions.team"
                    ),
                ),
                (
                    "membership",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="teams",
                        to="agent_sessions.membership",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("team", "membership"), name="team_member_is_listed_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="BeatMinute",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "lease",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="minutes",
                        to="agent_sessions.lease",
                    ),
                ),
                ("minute", models.IntegerField()),
                ("beats", models.IntegerField(default=0)),
                ("progresses", models.IntegerField(default=0)),
            ],
            options={
                "indexes": [models.Index(fields=["minute"], name="beat_minute_by_time")],
                "constraints": [
                    models.UniqueConstraint(fields=("lease", "minute"), name="beat_minute_is_counted_once"),
                    models.CheckConstraint(
                        condition=models.Q(("beats__gte", 0), ("progresses__gte", 0)), name="beat_minute_counts_up"
                    ),
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
    ]
