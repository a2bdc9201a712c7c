"""Database triggers for imported effects, on both vendors: they never change.

They carry the permission that another Gatebook recorded. So no column of theirs may change, and
they belong to an archive, where no command is possible.
"""

from journal.triggers import Law

_STILL = "imported_effect_never_moves"
_STILL_SAYS = f"{_STILL}: what a bundle brought is the word of another book, and history here"
_HOME = "imported_effect_lies_in_an_archive"
_HOME_SAYS = f"{_HOME}: import a bundle into a project of its own"
_EFFECT = "ledger_effect"
_ARCHIVE = "(SELECT archive FROM {schema}agent_sessions_project WHERE id = NEW.project_id)"

LAW = Law(
    postgresql={
        _STILL: (
            _EFFECT,
            f"BEFORE UPDATE ON {_EFFECT} FOR EACH ROW WHEN (OLD.imported OR NEW.imported)"
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
            f"BEFORE UPDATE ON {_EFFECT} WHEN OLD.imported OR NEW.imported"
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
