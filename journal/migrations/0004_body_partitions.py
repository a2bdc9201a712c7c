"""Partition journal_body by ranges of positions on PostgreSQL; no row is copied.

The table becomes the first partition. Two functions of the owner, which the application's role may
call, make partitions and drop expired ones. SQLite has no partitions and is left as it is.
"""

from typing import Any

from django.db import migrations

# A partition holds 2^20 positions; BITS is in the names of partitions, so it never changes.
_FIRST = """
DO $$
DECLARE
  item record;
  reference text;
  top bigint;
BEGIN
  SET CONSTRAINTS ALL IMMEDIATE;
  LOCK TABLE journal_entry, journal_body IN ACCESS EXCLUSIVE MODE;
  FOR item IN SELECT tgname FROM pg_trigger
      WHERE tgrelid = 'journal_body'::regclass AND NOT tgisinternal LOOP
    EXECUTE format('DROP TRIGGER %I ON journal_body', item.tgname);
  END LOOP;
  SELECT conname INTO reference FROM pg_constraint
    WHERE conrelid = 'journal_body'::regclass AND contype = 'f';
  SELECT greatest(
      (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM journal_entry_position_seq),
      (SELECT COALESCE(max(entry_id), 0) FROM journal_body)) INTO top;
  ALTER TABLE journal_body RENAME TO journal_body_0;
  ALTER TABLE journal_body_0 RENAME CONSTRAINT journal_body_pkey TO journal_body_0_pkey;
  CREATE TABLE journal_body (LIKE journal_body_0 INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
    PARTITION BY RANGE (entry_id);
  ALTER TABLE journal_body ADD CONSTRAINT journal_body_pkey PRIMARY KEY (entry_id);
  EXECUTE format('ALTER TABLE journal_body ADD CONSTRAINT %I FOREIGN KEY (entry_id)'
    ' REFERENCES journal_entry (position) DEFERRABLE INITIALLY DEFERRED', reference);
  EXECUTE format('ALTER TABLE journal_body ATTACH PARTITION journal_body_0'
    ' FOR VALUES FROM (MINVALUE) TO (%s)', ((top >> 20) + 1) << 20);
  CREATE TABLE journal_body_rest PARTITION OF journal_body DEFAULT;
END $$
"""

_MAKE = """
CREATE FUNCTION journal_make_body_partitions() RETURNS integer LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
  home regnamespace := (SELECT relnamespace FROM pg_class WHERE oid = 'journal_body'::regclass);
  last bigint;
  top bigint;
  made integer := 0;
  name text;
  definition text;
BEGIN
  -- The ranges ahead: nothing is in them, so that no statement here reads a row.
  SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO last FROM journal_entry_position_seq;
  SELECT max(substring(pg_get_expr(relpartbound, oid) FROM 'TO [(]''?([0-9]+)')::bigint) INTO top
    FROM pg_class JOIN pg_inherits ON inhrelid = oid WHERE inhparent = 'journal_body'::regclass;
  FOR cell IN greatest(COALESCE(top, 0) >> 20, last >> 20) .. (last >> 20) + 4 LOOP
    -- What came while no partition was ready stays where it is.
    CONTINUE WHEN EXISTS (SELECT 1 FROM journal_body_rest
      WHERE entry_id >= cell::bigint << 20 AND entry_id < (cell::bigint + 1) << 20);
    name := format('%s.journal_body_%s', home, cell);
    EXECUTE format('CREATE TABLE %s (LIKE journal_body INCLUDING DEFAULTS INCLUDING CONSTRAINTS'
      ' INCLUDING INDEXES)', name);
    EXECUTE format('ALTER TABLE journal_body ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)',
      name, cell::bigint << 20, (cell::bigint + 1) << 20);
    -- PostgreSQL repeats only the triggers of rows on a partition.
    FOR definition IN SELECT pg_get_triggerdef(oid) FROM pg_trigger
        WHERE tgrelid = 'journal_body'::regclass AND NOT tgisinternal AND tgtype & 1 = 0 LOOP
      EXECUTE regexp_replace(definition, ' ON \\S+ ', format(' ON %s ', name));
    END LOOP;
    made := made + 1;
  END LOOP;
  RETURN made;
END $$
"""

_DROP = """
CREATE FUNCTION journal_drop_body_partition(cell bigint) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
  home regnamespace := (SELECT relnamespace FROM pg_class WHERE oid = 'journal_body'::regclass);
  name text := format('%s.journal_body_%s', home, cell);
  part regclass := to_regclass(name);
  last bigint;
  top bigint;
  kept bigint;
  held bigint;
  tries integer := 0;
BEGIN
  SELECT substring(pg_get_expr(relpartbound, oid) FROM 'TO [(]''?([0-9]+)')::bigint INTO top
    FROM pg_class JOIN pg_inherits ON inhrelid = oid
    WHERE inhparent = 'journal_body'::regclass AND oid = part;
  IF top IS NULL THEN
    RAISE EXCEPTION 'journal_body has no partition %; pg_inherits lists them', cell
      USING ERRCODE = 'undefined_object';
  END IF;
  SELECT last_value INTO last FROM journal_entry_position_seq;
  IF top > last THEN
    RAISE EXCEPTION 'partition % of journal_body is in use: positions up to % go there', cell,
      top - 1 USING ERRCODE = 'object_in_use';
  END IF;
  EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %s body WHERE NOT EXISTS (SELECT 1'
    ' FROM journal_erasure gone WHERE gone.entry_id = body.entry_id) LIMIT 5001) found', name)
    INTO kept;
  IF kept > 5000 THEN
    RAISE EXCEPTION 'partition % of journal_body holds more than 5000 texts that no row of'
      ' journal_erasure names; let them expire first', cell USING ERRCODE = 'restrict_violation';
  END IF;
  EXECUTE format('SELECT min(body.entry_id) FROM %s body JOIN journal_erasure USING (entry_id)'
    ' JOIN journal_entry entry ON entry.position = body.entry_id JOIN erasure_legalhold hold'
    ' ON hold.session_id = entry.session AND hold.released_at_us IS NULL', name) INTO held;
  IF held IS NOT NULL THEN
    RAISE EXCEPTION 'partition % of journal_body holds the text of entry %, whose session is under'
      ' a legal hold; release the hold first', cell, held USING ERRCODE = 'restrict_violation';
  END IF;
  -- Writers lock the entries first, readers who write later the bodies: against either order one
  -- of these gets both locks. A failed try releases its own, so that others go on meanwhile.
  SET CONSTRAINTS ALL IMMEDIATE;
  LOOP
    BEGIN
      IF tries % 2 = 0 THEN
        LOCK TABLE journal_entry, journal_body IN ACCESS EXCLUSIVE MODE;
      ELSE
        LOCK TABLE journal_body, journal_entry IN ACCESS EXCLUSIVE MODE;
      END IF;
      EXIT;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      tries := tries + 1;
      IF tries = 20 THEN
        RAISE;
      END IF;
      PERFORM pg_sleep(0.05);
    END;
  END LOOP;
  EXECUTE format('ALTER TABLE journal_body DETACH PARTITION %s', name);
  EXECUTE format('INSERT INTO journal_body SELECT entry_id, salt, text FROM %s body WHERE NOT'
    ' EXISTS (SELECT 1 FROM journal_erasure gone WHERE gone.entry_id = body.entry_id)', name);
  SET CONSTRAINTS ALL IMMEDIATE;
  EXECUTE format('DROP TABLE %s', name);
  RETURN kept;
END $$
"""


def partition(apps: Any, editor: Any) -> None:
    """Make the partitioned table and its functions."""
    if editor.connection.vendor != "postgresql":
        return
    with editor.connection.cursor() as cursor:
        cursor.execute("SELECT quote_ident(current_schema())")
        schema = cursor.fetchone()[0]
        cursor.execute(_FIRST)
        for function in (_MAKE, _DROP):
            cursor.execute(function.replace("{schema}", schema))
        cursor.execute("REVOKE ALL ON FUNCTION journal_make_body_partitions() FROM PUBLIC")
        cursor.execute("REVOKE ALL ON FUNCTION journal_drop_body_partition(bigint) FROM PUBLIC")
        cursor.execute("SELECT journal_make_body_partitions()")


class Migration(migrations.Migration):
    dependencies = [("journal", "0003_retention")]

    operations = [migrations.RunPython(partition, migrations.RunPython.noop)]
