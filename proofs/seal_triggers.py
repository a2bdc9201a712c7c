"""Triggers of the seal, on both vendors.

Rows are never changed, deleted or replaced. Sealed entries are entries of the journal, and follow
each other by number and by position. A tile grows at its end, and begins when the tile before it is
full. Tree heads are numbered without gaps and their sizes never shrink. Only the retirement of a
key is set later.
"""

from typing import Final

from db.triggers import TriggerSet

_TABLES: Final = ("proofs_sealedentry", "proofs_tile", "proofs_treehead", "proofs_signingkey")
_FULL: Final = 256 * 32
_RETIREMENT_ONLY: Final = (
    "OLD.retired_at_us IS NULL AND NEW.id = OLD.id AND NEW.name = OLD.name"
    " AND NEW.key_id = OLD.key_id AND NEW.public_key = OLD.public_key"
    " AND NEW.first_used_us = OLD.first_used_us AND NEW.endorsement = OLD.endorsement"
)
_SAME_TILE: Final = "NEW.id = OLD.id AND NEW.level = OLD.level AND NEW.index = OLD.index"

_FUNCTIONS: Final = f"""
CREATE OR REPLACE FUNCTION proofs_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the seal is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE FUNCTION proofs_require_next_entries() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  first bigint;
  last bigint;
  number bigint;
  lowest bigint;
  highest bigint;
BEGIN
  SELECT min(log_index), max(log_index), count(*), min(entry_id), max(entry_id)
    INTO first, last, number, lowest, highest FROM added;
  IF number = 0 THEN
    RETURN NULL;
  END IF;
  IF last - first + 1 <> number OR EXISTS (
    SELECT 1 FROM {{schema}}.proofs_sealedentry entry
    LEFT JOIN {{schema}}.proofs_sealedentry before ON before.log_index = entry.log_index - 1
    WHERE entry.log_index BETWEEN first AND last AND entry.log_index <> 0
      AND (before.entry_id IS NULL OR before.entry_id >= entry.entry_id)) THEN
    RAISE EXCEPTION 'the seal is append-only: sealed entries follow each other without gaps'
      USING ERRCODE = 'restrict_violation';
  END IF;
  -- Without the range PostgreSQL may read the whole journal.
  IF number <> (SELECT count(*) FROM {{schema}}.journal_entry
      WHERE position BETWEEN lowest AND highest AND position IN (SELECT entry_id FROM added)) THEN
    RAISE EXCEPTION 'the seal is append-only: a sealed entry is one of the journal'
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION proofs_require_next_tile() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.index > 0 AND NOT EXISTS (SELECT 1 FROM {{schema}}.proofs_tile before
      WHERE before.level = NEW.level AND before.index = NEW.index - 1
        AND length(before.hashes) = {_FULL}) THEN
    RAISE EXCEPTION 'the seal is append-only: a tile begins when the one before it is full'
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION proofs_require_grown_tile() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {_SAME_TILE} AND substr(NEW.hashes, 1, length(OLD.hashes)) = OLD.hashes THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'the seal is append-only: a tile only grows at its end'
    USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE FUNCTION proofs_require_next_head() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.id = 1 AND NOT EXISTS (SELECT 1 FROM {{schema}}.proofs_treehead))
    OR EXISTS (SELECT 1 FROM {{schema}}.proofs_treehead
      WHERE id = NEW.id - 1 AND size <= NEW.size) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'the seal is append-only: tree heads follow each other and never shrink'
    USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE FUNCTION proofs_require_retirement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {_RETIREMENT_ONLY} THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'the seal is append-only: of a key only its retirement is set, once'
    USING ERRCODE = 'restrict_violation';
END $$;
"""

_POSTGRESQL: Final = {
    **{
        f"{table}_is_never_deleted": (
            table,
            f"BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION proofs_refuse_change()",
        )
        for table in _TABLES
    },
    **{
        f"{table}_is_never_truncated": (
            table,
            f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT"
            " EXECUTE FUNCTION proofs_refuse_change()",
        )
        for table in _TABLES
    },
    **{
        f"{table}_never_changes": (
            table,
            f"BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION proofs_refuse_change()",
        )
        for table in ("proofs_sealedentry", "proofs_treehead")
    },
    "sealed_entries_have_no_gap": (
        "proofs_sealedentry",
        "AFTER INSERT ON proofs_sealedentry REFERENCING NEW TABLE AS added"
        " FOR EACH STATEMENT EXECUTE FUNCTION proofs_require_next_entries()",
    ),
    "tile_follows_a_full_one": (
        "proofs_tile",
        "BEFORE INSERT ON proofs_tile FOR EACH ROW EXECUTE FUNCTION proofs_require_next_tile()",
    ),
    "tile_only_grows": (
        "proofs_tile",
        "BEFORE UPDATE ON proofs_tile FOR EACH ROW EXECUTE FUNCTION proofs_require_grown_tile()",
    ),
    "tree_head_follows_the_last": (
        "proofs_treehead",
        "BEFORE INSERT ON proofs_treehead FOR EACH ROW EXECUTE FUNCTION proofs_require_next_head()",
    ),
    "signing_key_only_retires": (
        "proofs_signingkey",
        "BEFORE UPDATE ON proofs_signingkey FOR EACH ROW"
        " EXECUTE FUNCTION proofs_require_retirement()",
    ),
}


def _refused(event: str, table: str, condition: str, message: str) -> tuple[str, str]:
    when = f" WHEN {condition}" if condition else ""
    text = f"the seal is append-only: {message}"
    return table, f"BEFORE {event} ON {table}{when} BEGIN SELECT RAISE(ABORT, '{text}'); END"


# INSERT OR REPLACE deletes without a DELETE trigger: each INSERT trigger also refuses a row whose
# key is stored.
_SQLITE: Final = {
    **{
        f"{table}_is_never_deleted": _refused("DELETE", table, "", f"DELETE on {table} is refused")
        for table in _TABLES
    },
    **{
        f"{table}_never_changes": _refused("UPDATE", table, "", f"UPDATE on {table} is refused")
        for table in ("proofs_sealedentry", "proofs_treehead")
    },
    "sealed_entries_have_no_gap": _refused(
        "INSERT",
        "proofs_sealedentry",
        "NEW.log_index <> (SELECT coalesce(max(log_index) + 1, 0) FROM proofs_sealedentry)"
        " OR NEW.entry_id <= (SELECT coalesce(max(entry_id), 0) FROM proofs_sealedentry)",
        "sealed entries follow each other without gaps",
    ),
    "sealed_entry_is_in_the_journal": _refused(
        "INSERT",
        "proofs_sealedentry",
        "NOT EXISTS (SELECT 1 FROM journal_entry WHERE position = NEW.entry_id)",
        "a sealed entry is one of the journal",
    ),
    "tile_follows_a_full_one": _refused(
        "INSERT",
        "proofs_tile",
        "EXISTS (SELECT 1 FROM proofs_tile stored WHERE stored.level = NEW.level"
        ' AND stored."index" = NEW."index")'
        " OR EXISTS (SELECT 1 FROM proofs_tile stored WHERE stored.id = NEW.id)"
        ' OR (NEW."index" > 0 AND NOT EXISTS (SELECT 1 FROM proofs_tile before'
        ' WHERE before.level = NEW.level AND before."index" = NEW."index" - 1'
        f" AND length(before.hashes) = {_FULL}))",
        "a tile begins when the one before it is full",
    ),
    "tile_only_grows": _refused(
        "UPDATE",
        "proofs_tile",
        f"NOT ({_SAME_TILE.replace('.index', '.' + chr(34) + 'index' + chr(34))}"
        " AND substr(NEW.hashes, 1, length(OLD.hashes)) = OLD.hashes)",
        "a tile only grows at its end",
    ),
    "tree_head_follows_the_last": _refused(
        "INSERT",
        "proofs_treehead",
        "NEW.id <> (SELECT coalesce(max(id) + 1, 1) FROM proofs_treehead)"
        " OR NEW.size < (SELECT coalesce(max(size), 0) FROM proofs_treehead"
        " WHERE id = NEW.id - 1)",
        "tree heads follow each other and never shrink",
    ),
    "signing_key_only_retires": _refused(
        "UPDATE",
        "proofs_signingkey",
        f"NOT ({_RETIREMENT_ONLY})",
        "of a key only its retirement is set, once",
    ),
    "signing_key_is_never_replaced": _refused(
        "INSERT",
        "proofs_signingkey",
        "EXISTS (SELECT 1 FROM proofs_signingkey stored WHERE stored.id = NEW.id"
        " OR (stored.name = NEW.name AND stored.key_id = NEW.key_id))",
        "a key is stored once",
    ),
}

SEAL_TRIGGERS: Final = TriggerSet(
    _POSTGRESQL,
    _FUNCTIONS,
    _SQLITE,
    needs=("journal_entry",),
    append_only=("proofs_sealedentry", "proofs_treehead"),
)
