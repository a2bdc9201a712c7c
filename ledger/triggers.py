"""Database triggers for attempts: none without its effect's permission.

A CHECK constraint sees one row. That an attempt has the permission of its effect needs two rows,
hence triggers. They fire after an insert: an upsert also fires BEFORE INSERT for rows that it then
updates, when the effect's permission may already be that of the next attempt.
"""

from db.triggers import TriggerSet
from ledger.models import Effect

_NEEDED = "attempt_needs_the_permission_of_its_effect"
_KEPT = "attempt_keeps_its_permission"
_FORGED = f"{_NEEDED}: an attempt is stored only under the permission of its effect"
_CHANGED = f"{_KEPT}: the permission, number and effect of an attempt never change"

_NAMED = "attempt_names_what_it_replaces"
_UNNAMED = (
    f"{_NAMED}: an attempt that follows one in doubt says that it takes its place, and by which row"
)
# The attempt before was neither answered, undone, nor resolved as not happened.
_FOLLOWS_DOUBT = (
    "EXISTS (SELECT 1 FROM {schema}ledger_attempt before WHERE before.effect_id = NEW.effect_id"
    " AND before.number = NEW.number - 1"
    " AND (before.acknowledged_mark = '' OR before.outcome = 'unknown')"
    " AND before.failure_reason <> 'rejected' AND before.number >"
    " (SELECT undone FROM {schema}ledger_effect WHERE id = NEW.effect_id AND NOT imported))"
)
_MAY_FOLLOW = "NEW.lane = 'command' AND NEW.number > 1 AND NEW.replaces IS NULL"

# An attempt without a command may turn out to have needed permission once its plan arrives, or the
# reverse.
_OTHER = (
    "(NEW.permission <> OLD.permission AND NOT"
    " (NEW.permission IN ('observed', 'bypassed') AND OLD.permission IN ('observed', 'bypassed')))"
)

# Imported attempts ran under permissions of another Gatebook; their effect never changes.
_UNDER = "AND (permission = NEW.permission OR imported)"

# Writers store the effect first, so the trigger reads what the attempt was folded with. The same
# comparison rejects an attempt without an effect.
ATTEMPT_TRIGGERS = TriggerSet(
    postgresql={
        _NEEDED: (
            "ledger_attempt",
            "AFTER INSERT ON ledger_attempt FOR EACH ROW EXECUTE FUNCTION ledger_need_permission()",
        ),
        _NAMED: (
            "ledger_attempt",
            f"AFTER INSERT ON ledger_attempt FOR EACH ROW WHEN ({_MAY_FOLLOW})"
            " EXECUTE FUNCTION ledger_name_what_is_replaced()",
        ),
        _KEPT: (
            "ledger_attempt",
            "AFTER UPDATE OF permission, number, effect_id ON ledger_attempt FOR EACH ROW"
            f" WHEN ({_OTHER} OR NEW.number <> OLD.number"
            " OR NEW.effect_id IS DISTINCT FROM OLD.effect_id)"
            " EXECUTE FUNCTION ledger_keep_permission()",
        ),
    },
    functions=f"""
CREATE OR REPLACE FUNCTION ledger_need_permission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {{schema}}.ledger_effect WHERE id = NEW.effect_id {_UNDER}) THEN
    RAISE EXCEPTION '{_FORGED}' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION ledger_name_what_is_replaced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {_FOLLOWS_DOUBT.replace("{schema}", "{schema}.")} THEN
    RAISE EXCEPTION '{_UNNAMED}' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION ledger_keep_permission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '{_CHANGED}' USING ERRCODE = 'check_violation';
END $$;
""",
    sqlite={
        _NEEDED: (
            "ledger_attempt",
            f"""AFTER INSERT ON ledger_attempt
            WHEN NOT EXISTS (SELECT 1 FROM ledger_effect WHERE id = NEW.effect_id {_UNDER}) BEGIN
            SELECT RAISE(ABORT, '{_FORGED}'); END""",
        ),
        _NAMED: (
            "ledger_attempt",
            f"""AFTER INSERT ON ledger_attempt
            WHEN {_MAY_FOLLOW} AND {_FOLLOWS_DOUBT.replace("{schema}", "")} BEGIN
            SELECT RAISE(ABORT, '{_UNNAMED}'); END""",
        ),
        _KEPT: (
            "ledger_attempt",
            f"""AFTER UPDATE OF permission, number, effect_id ON ledger_attempt
            WHEN {_OTHER} OR NEW.number <> OLD.number OR NEW.effect_id IS NOT OLD.effect_id BEGIN
            SELECT RAISE(ABORT, '{_CHANGED}'); END""",
        ),
    },
)

_STILL = "imported_effect_never_changes"
_STILL_SAYS = f"{_STILL}: imported effects are the history of another Gatebook and never change"
# Texts that an erasure may remove; nothing else of an imported effect changes.
_TEXTS = (
    "effect_key",
    "call_id",
    "turn",
    "ref",
    "moved_refs",
    "environment",
    "resource",
    "external_reference",
)
_REWRITTEN = " OR ".join(
    f"NEW.{name} IS {{distinct}} OLD.{name}"
    + (f" AND NEW.{name} <> '' AND NEW.{name} NOT LIKE '[erased%'" if name in _TEXTS else "")
    for name in (field.column for field in Effect._meta.concrete_fields)
)
_REWRITES = f"(OLD.imported OR NEW.imported) AND ({_REWRITTEN})"
_HOME = "imported_effect_is_in_an_archive"
_HOME_SAYS = f"{_HOME}: import a bundle into a project of its own"
_EFFECT = "ledger_effect"
_ARCHIVE = "(SELECT archive FROM {schema}accounts_project WHERE id = NEW.project_id)"

IMPORTED_EFFECT_TRIGGERS = TriggerSet(
    postgresql={
        _STILL: (
            _EFFECT,
            f"BEFORE UPDATE ON {_EFFECT} FOR EACH ROW"
            f" WHEN ({_REWRITES.replace('{distinct}', 'DISTINCT FROM')})"
            " EXECUTE FUNCTION ledger_keep_imported()",
        ),
        _HOME: (
            _EFFECT,
            f"AFTER INSERT ON {_EFFECT} FOR EACH ROW WHEN (NEW.imported)"
            " EXECUTE FUNCTION ledger_find_archive()",
        ),
    },
    functions=f"""
CREATE OR REPLACE FUNCTION ledger_keep_imported() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '{_STILL_SAYS}' USING ERRCODE = 'check_violation';
END $$;
CREATE OR REPLACE FUNCTION ledger_find_archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT {_ARCHIVE.replace("{schema}", "{schema}.")} THEN
    RAISE EXCEPTION '{_HOME_SAYS}' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;
""",
    sqlite={
        _STILL: (
            _EFFECT,
            f"BEFORE UPDATE ON {_EFFECT} WHEN {_REWRITES.replace('{distinct}', 'NOT')}"
            f" BEGIN SELECT RAISE(ABORT, '{_STILL_SAYS}'); END",
        ),
        _HOME: (
            _EFFECT,
            f"AFTER INSERT ON {_EFFECT} WHEN NEW.imported"
            f" AND NOT {_ARCHIVE.replace('{schema}', '')}"
            f" BEGIN SELECT RAISE(ABORT, '{_HOME_SAYS}'); END",
        ),
    },
)
