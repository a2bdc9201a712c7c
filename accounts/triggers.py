"""Triggers of projects, on both vendors: what a project is from its creation it stays.

A project is an archive from its creation or never. An archive takes no agent token, and without a
token no command and no report reaches it. Its pages therefore show only what another installation
recorded.

A project redacts secrets from its creation or never: switched off later, it would store what agents
rely on it to replace.
"""

from db.triggers import TriggerSet

_STAYS = "project_kind_never_changes"
_STAYS_SAYS = f"{_STAYS}: a project is an archive from the first or never"
_REDACTS = "project_redacts_as_created"
_REDACTS_SAYS = f"{_REDACTS}: a project redacts secrets from its creation or never"
_NO_TOKEN = "archive_has_no_tokens"  # noqa: S105 - the name of a trigger
_NO_TOKEN_SAYS = f"{_NO_TOKEN}: an archive contains imported bundles only; agents cannot act in it"
_PROJECT = "accounts_project"
_TOKEN = "accounts_agenttoken"  # noqa: S105 - the name of a table
_IS_ARCHIVE = "(SELECT archive FROM {schema}accounts_project WHERE id = NEW.project_id)"

PROJECT_TRIGGERS = TriggerSet(
    postgresql={
        _STAYS: (
            _PROJECT,
            f"BEFORE UPDATE OF archive ON {_PROJECT} FOR EACH ROW"
            " WHEN (NEW.archive IS DISTINCT FROM OLD.archive)"
            " EXECUTE FUNCTION agent_sessions_keep_archive()",
        ),
        _REDACTS: (
            _PROJECT,
            f"BEFORE UPDATE OF redacts ON {_PROJECT} FOR EACH ROW"
            " WHEN (NEW.redacts IS DISTINCT FROM OLD.redacts)"
            " EXECUTE FUNCTION accounts_keep_redacting()",
        ),
        _NO_TOKEN: (
            _TOKEN,
            f"BEFORE INSERT OR UPDATE OF project_id ON {_TOKEN} FOR EACH ROW"
            " EXECUTE FUNCTION agent_sessions_refuse_token()",
        ),
    },
    functions=f"""
CREATE OR REPLACE FUNCTION agent_sessions_keep_archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '{_STAYS_SAYS}' USING ERRCODE = 'check_violation';
END $$;
CREATE OR REPLACE FUNCTION accounts_keep_redacting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '{_REDACTS_SAYS}' USING ERRCODE = 'check_violation';
END $$;
CREATE OR REPLACE FUNCTION agent_sessions_refuse_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {_IS_ARCHIVE.replace("{schema}", "{schema}.")} THEN
    RAISE EXCEPTION '{_NO_TOKEN_SAYS}' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $$;
""",
    sqlite={
        _STAYS: (
            _PROJECT,
            f"BEFORE UPDATE OF archive ON {_PROJECT} WHEN NEW.archive IS NOT OLD.archive"
            f" BEGIN SELECT RAISE(ABORT, '{_STAYS_SAYS}'); END",
        ),
        _REDACTS: (
            _PROJECT,
            f"BEFORE UPDATE OF redacts ON {_PROJECT} WHEN NEW.redacts IS NOT OLD.redacts"
            f" BEGIN SELECT RAISE(ABORT, '{_REDACTS_SAYS}'); END",
        ),
        _NO_TOKEN: (
            _TOKEN,
            f"BEFORE INSERT ON {_TOKEN} WHEN {_IS_ARCHIVE.replace('{schema}', '')}"
            f" BEGIN SELECT RAISE(ABORT, '{_NO_TOKEN_SAYS}'); END",
        ),
    },
)
