import django.db.models.deletion
import inquiry.words.column
import journal.ids
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

# Words are found by GIN on PostgreSQL and by FTS5 on SQLite, which splits at blanks here and folds nothing: the words
# are cut already. It keeps which rows have a word and nothing else.
WORDS = {
    "postgresql": [
        # Rows of two kilobytes would be pressed and put aside, and both takes longer than all else that is done to them.
        "ALTER TABLE inquiry_effectwords SET (toast_tuple_target = 8160)",
        # Beside its words the index knows of each row where in the journal it stands: the part of 2^15 positions and, below
        # zero, that of 2^20. These come first, so that whatever else is asked is looked up within the part alone.
        """
        CREATE INDEX effect_words_by_word ON inquiry_effectwords
        USING gin ((ARRAY[position >> 15, -1 - (position >> 20)]), words) WITH (gin_pending_list_limit = 1024)
        """,
        # The newest rows with all of the words. Few are gathered at once. Many are looked for part by part from the newest
        # on, until there are enough: the index skips what lies between, and 2^20 positions without any are one look. Words
        # that are only begun cannot be skipped to: of them the newest rows are read, and where those have few, all are
        # gathered. The first number answered is the position down to which all were found, 0 for all there are.
        # The planner believes that words come together by chance, and would read a million rows for two that never do;
        # with what is forbidden here it can only ask the index. What it believes of one word tells few from many.
        # OFFSET 0 keeps the words of a row out of what is put in order: they took as long as all the rest.
        """
        CREATE FUNCTION inquiry_newest_of_words(
          asked text[], begun text[], home uuid, low bigint, high bigint, most integer
        ) RETURNS bigint[] LANGUAGE plpgsql
        SET enable_seqscan = off SET enable_indexscan = off SET jit = off SET work_mem = '64MB'
        SET plan_cache_mode = force_generic_plan SET max_parallel_workers_per_gather = 0 AS $$
        DECLARE
          whole tsquery := array_to_string(asked || begun, ' & ');
          one tsquery := asked[1];
          others tsquery := nullif(array_to_string(asked[2:], ' & '), '');
          starts tsquery := nullif(array_to_string(begun, ' & '), '');
          part bigint := high >> 15;
          names bigint[] := '{}';
          here bigint[];
          gap boolean := true;
          looked bigint := 0;
          rows_here bigint := 0;
          term text;
          plan json;
          guess bigint;
        BEGIN
          FOREACH term IN ARRAY asked || begun LOOP
            EXECUTE format('EXPLAIN (FORMAT JSON) SELECT 1 FROM inquiry_effectwords WHERE words @@ %L::tsquery', term)
              INTO plan;
            guess := least(guess, (plan -> 0 -> 'Plan' ->> 'Plan Rows')::bigint);
          END LOOP;
          IF guess < most THEN
            SELECT array_agg(position ORDER BY position DESC) INTO here FROM (
              SELECT position FROM inquiry_effectwords WHERE words @@ whole AND project_id = home LIMIT most
            ) few;
            IF here IS NULL OR cardinality(here) < most THEN
              RETURN 0::bigint || coalesce(here, names);
            END IF;
          END IF;
          WHILE part >= low >> 15 LOOP
            IF one IS NULL THEN
              SELECT array_agg(position ORDER BY position DESC) FILTER (WHERE does), count(*) INTO here, rows_here FROM (
                SELECT position, words @@ starts AND project_id = home AS does FROM inquiry_effectwords
                WHERE ARRAY[position >> 15, -1 - (position >> 20)] @> ARRAY[part] OFFSET 0
              ) rows_of_part;
              looked := looked + rows_here;
            ELSE
              IF gap AND part & 31 = 31 THEN
                PERFORM 1 FROM inquiry_effectwords
                  WHERE ARRAY[position >> 15, -1 - (position >> 20)] @> ARRAY[-1 - (part >> 5)]
                  AND words @@ one AND words @@ coalesce(others, one) AND project_id = home LIMIT 1;
                IF NOT FOUND THEN
                  part := part - 32;
                  CONTINUE;
                END IF;
              END IF;
              IF others IS NULL AND starts IS NULL THEN
                SELECT array_agg(position ORDER BY position DESC) INTO here FROM inquiry_effectwords
                  WHERE ARRAY[position >> 15, -1 - (position >> 20)] @> ARRAY[part]
                  AND words @@ one AND project_id = home;
              ELSE
                SELECT array_agg(position ORDER BY position DESC) FILTER (WHERE does), count(starts) INTO here, rows_here
                FROM (
                  SELECT position, starts IS NULL OR words @@ starts AS does FROM inquiry_effectwords
                  WHERE ARRAY[position >> 15, -1 - (position >> 20)] @> ARRAY[part]
                  AND words @@ one AND words @@ coalesce(others, one) AND project_id = home OFFSET 0
                ) rows_of_part;
              END IF;
              looked := looked + rows_here;
            END IF;
            gap := here IS NULL;
            names := names || here;
            IF cardinality(names) >= most THEN
              RETURN names[most] || names[:most];
            END IF;
            IF looked > 2000 AND cardinality(names) * 20 < looked THEN
              SELECT array_agg(position ORDER BY position DESC) INTO here FROM (
                SELECT position FROM inquiry_effectwords WHERE words @@ whole AND project_id = home
                ORDER BY position DESC LIMIT most
              ) newest;
              RETURN CASE WHEN cardinality(here) = most THEN here[most] ELSE 0 END || coalesce(here, '{}');
            ELSIF looked > 20000 THEN
              RETURN (part << 15) || names;
            END IF;
            part := part - 1;
          END LOOP;
          RETURN 0::bigint || names;
        END $$
        """,
        # Below which position no effect has all of the words: by the same two looks, from the oldest on.
        """
        CREATE FUNCTION inquiry_oldest_of_words(asked text[], home uuid, low bigint, high bigint)
        RETURNS bigint LANGUAGE plpgsql STABLE
        SET enable_seqscan = off SET enable_indexscan = off SET jit = off SET work_mem = '64MB'
        SET plan_cache_mode = force_generic_plan SET max_parallel_workers_per_gather = 0 AS $$
        DECLARE
          one tsquery := asked[1];
          others tsquery := coalesce(nullif(array_to_string(asked[2:], ' & '), ''), asked[1]);
          part bigint := low >> 15;
        BEGIN
          WHILE part <= high >> 15 LOOP
            IF part & 31 = 0 THEN
              PERFORM 1 FROM inquiry_effectwords
                WHERE ARRAY[position >> 15, -1 - (position >> 20)] @> ARRAY[-1 - (part >> 5)]
                AND words @@ one AND words @@ others AND project_id = home LIMIT 1;
              IF NOT FOUND THEN
                part := part + 32;
                CONTINUE;
              END IF;
            END IF;
            PERFORM 1 FROM inquiry_effectwords
              WHERE ARRAY[position >> 15, -1 - (position >> 20)] @> ARRAY[part]
              AND words @@ one AND words @@ others AND project_id = home LIMIT 1;
            EXIT WHEN FOUND;
            part := part + 1;
          END LOOP;
          RETURN part << 15;
        END $$
        """,
    ],
    "sqlite": [
        """
        CREATE VIRTUAL TABLE inquiry_wordindex USING fts5(
          words, content = 'inquiry_effectwords', content_rowid = 'position', tokenize = 'ascii', detail = 'none',
          columnsize = 0
        )
        """,
    ],
}
WITHOUT_WORDS = {
    "postgresql": [
        "DROP TRIGGER IF EXISTS body_takes_its_words_along ON journal_body",
        "DROP FUNCTION inquiry_oldest_of_words(text[], uuid, bigint, bigint)",
        "DROP FUNCTION inquiry_newest_of_words(text[], text[], uuid, bigint, bigint, integer)",
        "DROP INDEX effect_words_by_word",
    ],
    "sqlite": [
        "DROP TRIGGER IF EXISTS body_takes_its_words_along",
        "DROP TABLE inquiry_wordindex",
    ],
}


def index_words(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    for statement in WORDS[editor.connection.vendor]:
        editor.execute(statement, params=None)  # a per cent sign is no parameter


def forget_words(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    for statement in WITHOUT_WORDS[editor.connection.vendor]:
        editor.execute(statement)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("agent_sessions", "0001_initial"),
        ("approvals", "0001_initial"),
        ("ledger", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Pulse",
            fields=[
                ("name", models.CharField(max_length=16, primary_key=True, serialize=False)),
                ("beat_us", models.BigIntegerField()),
                ("every_us", models.BigIntegerField(default=0)),
                ("beats", models.BigIntegerField(default=1)),
                ("position", models.BigIntegerField(default=0)),
                ("held_until_us", models.BigIntegerField(default=0)),
                ("succeeded_us", models.BigIntegerField(default=0)),
                ("failed_us", models.BigIntegerField(default=0)),
                ("error", models.CharField(blank=True, default="", max_length=64)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("beats__gte", 1), ("every_us__gte", 0)), name="pulse_counts_up"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StuckLimit",
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
                ("name", models.CharField(max_length=16)),
                ("value", models.IntegerField()),
            ],
            options={
                "indexes": [models.Index(fields=["project"], name="stuck_limit_by_project")],
                "constraints": [
                    models.UniqueConstraint(fields=("agent", "name"), name="stuck_limit_is_set_once_per_agent"),
                    models.CheckConstraint(
                        condition=models.Q(models.Q(("name", ""), _negated=True), ("value__gte", 0)),
                        name="stuck_limit_names_a_length",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="StuckTransition",
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
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.session",
                    ),
                ),
                ("rule", models.CharField(max_length=3)),
                ("subject", models.UUIDField()),
                ("epoch", models.BigIntegerField(default=0)),
                ("since_us", models.BigIntegerField()),
                ("seen_us", models.BigIntegerField()),
                ("seen_sweep", models.BigIntegerField()),
                ("raised_us", models.BigIntegerField(null=True)),
                ("raised_position", models.BigIntegerField(null=True)),
                ("cleared_us", models.BigIntegerField(null=True)),
                ("cleared_position", models.BigIntegerField(null=True)),
                ("says", models.JSONField(default=list)),
                ("needs_person", models.BooleanField(default=True)),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("snoozed_until_us", models.BigIntegerField(null=True)),
                (
                    "snoozed_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("snoozed_position", models.BigIntegerField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("cleared_us__isnull", True)),
                        fields=["project", "since_us"],
                        name="stuck_open_by_age",
                    ),
                    models.Index(
                        condition=models.Q(("session__isnull", False)),
                        fields=["session", "since_us"],
                        name="stuck_by_session",
                    ),
                    models.Index(
                        condition=models.Q(("raised_position__isnull", False)),
                        fields=["project", "rule", "raised_position"],
                        name="stuck_ever_by_rule",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("cleared_us__isnull", True)),
                        fields=("rule", "subject", "epoch"),
                        name="stuck_episode_is_open_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("rule__one_of", ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S10"])),
                        name="stuck_rule_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("raised_position__isnull", True), ("raised_us__isnull", True)),
                            models.Q(
                                ("raised_position__isnull", False),
                                ("raised_us__gte", models.F("seen_us")),
                                ("raised_us__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="stuck_is_raised_after_it_was_seen_and_in_the_journal",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cleared_position__isnull", True),
                            models.Q(("cleared_us__isnull", False), ("raised_us__isnull", False)),
                            _connector="OR",
                        ),
                        name="stuck_is_cleared_in_the_journal_after_it_was_raised",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("snoozed_until_us__isnull", True),
                            models.Q(("snoozed_by__isnull", False), ("snoozed_position__isnull", False)),
                            _connector="OR",
                        ),
                        name="stuck_is_snoozed_by_a_person_with_a_reason",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="EffectWords",
            fields=[
                ("position", inquiry.words.column.RowId(primary_key=True, serialize=False)),
                ("words", inquiry.words.column.WordsField()),
                ("cut_short", models.BooleanField(default=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("position__gt", 0)), name="words_are_of_an_effect_in_the_journal"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ImportedBundle",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="agent_sessions.project"
                    ),
                ),
                (
                    "session",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="agent_sessions.session"
                    ),
                ),
                ("sha256", models.CharField(max_length=64)),
                ("version", models.IntegerField()),
                ("told", models.JSONField()),
                ("cut_position", models.BigIntegerField()),
                ("cut_us", models.BigIntegerField()),
                ("imported_us", models.BigIntegerField()),
                ("position", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("sha256",), name="bundle_is_imported_once"),
                    models.CheckConstraint(
                        condition=models.Q(("version__gte", 1)), name="bundle_versions_start_at_one"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ImportedGate",
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
                    "effect",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="ledger.effect"
                    ),
                ),
                ("opened_position", models.BigIntegerField()),
                ("told", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="Incident",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                ("opened_position", models.BigIntegerField()),
                ("title_position", models.BigIntegerField()),
                ("state", models.CharField(default="open", max_length=9)),
                ("opened_at_us", models.BigIntegerField()),
                ("changed_at_us", models.BigIntegerField()),
                ("closed_at_us", models.BigIntegerField(null=True)),
                ("version", models.IntegerField(default=1)),
                (
                    "opened_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="incidents",
                        to="agent_sessions.project",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="IncidentEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
                (
                    "incident",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="entries",
                        to="inquiry.incident",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="IncidentMember",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=7)),
                ("number", models.BigIntegerField()),
                ("added_at_us", models.BigIntegerField()),
                ("added_position", models.BigIntegerField()),
                ("removed_at_us", models.BigIntegerField(null=True)),
                ("removed_position", models.BigIntegerField(null=True)),
                (
                    "added_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "incident",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="members",
                        to="inquiry.incident",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="incident",
            index=models.Index(fields=["project", "opened_position"], name="incident_by_opening"),
        ),
        migrations.AddConstraint(
            model_name="incident",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__one_of", ["open", "contained", "closed"])), name="incident_state_is_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="incident",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("closed_at_us__isnull", False), ("state", "closed")),
                    models.Q(models.Q(("state", "closed"), _negated=True), ("closed_at_us__isnull", True)),
                    _connector="OR",
                ),
                name="incident_is_closed_at_a_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="incident",
            constraint=models.CheckConstraint(
                condition=models.Q(("changed_at_us__gte", models.F("opened_at_us"))),
                name="incident_changes_after_it_was_opened",
            ),
        ),
        migrations.AddConstraint(
            model_name="incident",
            constraint=models.CheckConstraint(
                condition=models.Q(("title_position__gte", models.F("opened_position"))),
                name="incident_title_is_in_the_journal",
            ),
        ),
        migrations.AddConstraint(
            model_name="incident",
            constraint=models.CheckConstraint(
                condition=models.Q(("version__gte", 1)), name="incident_version_counts_up"
            ),
        ),
        migrations.AddConstraint(
            model_name="incidententry",
            constraint=models.UniqueConstraint(fields=("incident", "position"), name="incident_entry_is_listed_once"),
        ),
        migrations.AddIndex(
            model_name="incidentmember",
            index=models.Index(
                condition=models.Q(("removed_position__isnull", True)),
                fields=["project", "kind", "number"],
                name="incident_of_a_member",
            ),
        ),
        migrations.AddConstraint(
            model_name="incidentmember",
            constraint=models.UniqueConstraint(
                condition=models.Q(("removed_position__isnull", True)),
                fields=("incident", "kind", "number"),
                name="incident_member_is_there_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="incidentmember",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__one_of", ["session", "effect", "gate", "entry"])),
                name="incident_member_kind_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="incidentmember",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("removed_at_us__isnull", True), ("removed_position__isnull", True)),
                    models.Q(
                        ("removed_at_us__gte", models.F("added_at_us")),
                        ("removed_at_us__isnull", False),
                        ("removed_position__gt", models.F("added_position")),
                        ("removed_position__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="incident_member_leaves_after_it_joined",
            ),
        ),
        migrations.RunPython(index_words, forget_words),
        migrations.CreateModel(
            name="Export",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                ("text", models.TextField()),
                ("format", models.CharField(max_length=6)),
                ("position", models.BigIntegerField()),
                ("state", models.CharField(default="waiting", max_length=7)),
                ("tries", models.IntegerField(default=0)),
                ("rows_done", models.BigIntegerField(default=0)),
                ("rows_in_all", models.BigIntegerField(null=True)),
                ("size", models.BigIntegerField(null=True)),
                ("sha256", models.CharField(blank=True, default="", max_length=64)),
                ("error", models.CharField(blank=True, default="", max_length=300)),
                ("asked_at_us", models.BigIntegerField()),
                ("beat_at_us", models.BigIntegerField(null=True)),
                ("ended_at_us", models.BigIntegerField(null=True)),
                (
                    "asked_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="exports",
                        to="agent_sessions.project",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["project", "asked_by", "asked_at_us"], name="export_by_person"),
                    models.Index(
                        condition=models.Q(("state__in", ["waiting", "running"])),
                        fields=["asked_at_us"],
                        name="export_unfinished",
                    ),
                    models.Index(
                        condition=models.Q(("state", "done")), fields=["ended_at_us"], name="export_to_be_removed"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("format__one_of", ["csv", "ndjson", "bundle"])),
                        name="export_format_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__one_of", ["waiting", "running", "done", "failed", "gone"])),
                        name="export_state_is_known",
                    ),
                    models.CheckConstraint(condition=models.Q(("text", ""), _negated=True), name="export_has_a_query"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "done"), _negated=True),
                            models.Q(
                                ("ended_at_us__isnull", False),
                                ("size__isnull", False),
                                models.Q(("sha256", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="export_that_is_done_has_a_file",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SavedQuery",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=80)),
                ("text", models.TextField()),
                ("shared", models.BooleanField(default=False)),
                ("saved_position", models.BigIntegerField()),
                ("created_at_us", models.BigIntegerField()),
                ("changed_at_us", models.BigIntegerField()),
                ("version", models.IntegerField(default=1)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="saved_queries",
                        to="agent_sessions.project",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("shared", True)), fields=["project", "name"], name="saved_query_shared"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "owner", "name"), name="saved_query_name_is_unique_for_its_owner"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("name", ""), _negated=True), models.Q(("text", ""), _negated=True)
                        ),
                        name="saved_query_has_a_name_and_a_text",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("changed_at_us__gte", models.F("created_at_us")), ("version__gte", 1)),
                        name="saved_query_changes_after_it_was_saved",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.UUIDField(default=journal.ids.uuid7, primary_key=True, serialize=False)),
                ("text", models.TextField()),
                ("place", models.BigIntegerField()),
                ("looked_at_us", models.BigIntegerField()),
                ("looks", models.BigIntegerField(default=0)),
                ("failures", models.IntegerField(default=0)),
                ("known", models.BinaryField(default=b"")),
                ("turned_on_at_us", models.BigIntegerField()),
                ("told_position", models.BigIntegerField(null=True)),
                ("stopped_at_us", models.BigIntegerField(null=True)),
                ("stopped_because", models.CharField(blank=True, default="", max_length=300)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="agent_sessions.project"
                    ),
                ),
                (
                    "query",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alert", to="inquiry.savedquery"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("stopped_at_us__isnull", True)),
                        fields=["failures", "looked_at_us"],
                        name="alert_to_look_at",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("failures__gte", 0), ("looks__gte", 0), ("place__gte", 0)),
                        name="alert_only_moves_forward",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("stopped_at_us__isnull", True), ("stopped_because", "")),
                            models.Q(
                                ("stopped_at_us__isnull", False), models.Q(("stopped_because", ""), _negated=True)
                            ),
                            _connector="OR",
                        ),
                        name="alert_that_is_stopped_says_why",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AlertChannel",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "alert",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chosen",
                        to="inquiry.alert",
                    ),
                ),
                (
                    "channel",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="approvals.noticechannel",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("alert", "channel"), name="alert_channel_is_chosen_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="FirstDoing",
            fields=[
                ("digest", models.BigIntegerField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
                ("told_position", models.BigIntegerField()),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.session",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("position__gt", 0)), name="first_doing_is_of_an_effect_in_the_journal"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RepeatedDoing",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
                ("sort", models.CharField(max_length=6)),
                ("digest", models.BigIntegerField()),
                ("told_position", models.BigIntegerField()),
                ("again_position", models.BigIntegerField()),
                ("nth", models.IntegerField()),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="agent_sessions.project",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="repeated_doings",
                        to="agent_sessions.session",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["digest", "position"], name="repeated_by_digest"),
                    models.Index(fields=["project", "sort", "position"], name="repeated_by_position"),
                    models.Index(
                        condition=models.Q(("nth__gt", 1)), fields=["project", "nth"], name="repeated_by_count"
                    ),
                    models.Index(fields=["session", "digest", "nth"], name="repeated_by_session"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("position", "sort"), name="doing_is_repeated_once_per_effect"),
                    models.CheckConstraint(
                        condition=models.Q(("sort__one_of", ("call", "read", "target"))),
                        name="repeated_doing_sort_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("again_position__gte", models.F("told_position")), ("nth__gte", 1)),
                        name="repeated_doing_is_counted_and_has_another",
                    ),
                ],
            },
        ),
    ]
