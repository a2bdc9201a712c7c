"""The law of effects that a bundle brought, kept by the database itself on both vendors.

They carry the leave that another book recorded, so this one never lets them move: not a column of theirs changes, and
they lie in an archive, where nobody can command. Whoever forgets that they are history is refused by the database.
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
            f"AFTER INSERT ON {_EFFECT} FOR EACH ROW WHEN (NEW.imported) EXECUTE FUNCTION ledger_find_archive()",
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
            f"AFTER INSERT ON {_EFFECT} WHEN NEW.imported AND NOT {_ARCHIVE.replace('{schema}', '')}"
            f" BEGIN SELECT RAISE(ABORT, '{_HOME_SAYS}'); END",
        ),
    },
)
