"""Checks that files in GATEBOOK_VAR, keys and database belong together.

`manage.py setup` creates the keys, records their fingerprints in the database and writes the
database's id to `<var>/installation`. All other commands only compare. They never create a key, and
never replace a missing database by an empty one.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

from django.conf import settings
from django.core.management import get_commands
from django.db import DatabaseError, connection

from config import secret_keys
from journal import fingerprints

NOTE: Final = "installation"
# Commands that do not use the installation, or (`setup`, `replace_key`) compare for themselves.
_FREE: Final = frozenset(
    {
        *(
            "setup",
            "replace_key",
            "record_schema",
            "policies_schema",
            "describe_search",
            "build_docs",
        ),
        "check_recorded_commands",
    }
)
# Django's commands may run without an installation, but not on another one's database.
_COMPARED: Final = frozenset({"migrate", "shell", "dbshell", "loaddata", "flush", "sqlflush"})
_OF_PEOPLE: Final = frozenset({"changepassword", "createsuperuser", "clearsessions"})


class InstallationNote(NamedTuple):
    """Content of `<var>/installation`: installation id and database location."""

    identity: str
    place: str


def refuse_command(arguments: list[str]) -> None:
    """Exit with a sentence where a command of manage.py would mix installations."""
    name = arguments[1] if len(arguments) > 1 else ""
    application = get_commands().get(name)
    if application is None or {"-h", "--help", "--url"} & set(arguments):
        # With --url the command talks to another machine.
        return
    ours = name not in _COMPARED and not application.startswith("django.")
    if name == "explain_command" and "--default" in arguments:
        return
    if name == "search" and settings.GATEBOOK_NEW_KEYS:
        return  # an auditor has a database role and no keys
    if name in _FREE or not (ours or name in _COMPARED | _OF_PEOPLE):
        return
    needs = (ours and not application.startswith("whitenoise")) or name in _OF_PEOPLE
    for sentence in find_installation_faults(must_exist=needs):
        raise SystemExit(f"gatebook: {sentence}")


def find_installation_faults(*, must_exist: bool = True) -> list[str]:
    """Return a sentence for each reason not to work on this installation.

    Without `must_exist` an installation that is not set up yet is accepted.
    """
    note = read_installation_note()
    try:
        stored = {} if _is_missing() else fingerprints.load_fingerprints()
    except DatabaseError:
        return []  # the command that uses the database reports the fault
    if note is not None and fingerprints.INSTALLATION_NAME not in stored:
        return [
            f"The files in {settings.VAR_DIR} belong to an installation in {note.place}, and the "
            f"database in use ({describe_database_location()}) holds none. Set DATABASE_URL as the "
            "service does, or "
            "restore the database. To begin a new installation set GATEBOOK_VAR to an empty "
            "folder."
        ]
    if note is not None and note.identity != stored[fingerprints.INSTALLATION_NAME]:
        return [
            f"The files in {settings.VAR_DIR} belong to an installation in {note.place}, and the "
            f"database in use ({describe_database_location()}) belongs to another. Set "
            "GATEBOOK_VAR and DATABASE_URL "
            "as the service does."
        ]
    if must_exist and fingerprints.INSTALLATION_NAME not in stored:
        return [
            f"Nothing is set up in {describe_database_location()}. Set GATEBOOK_VAR and "
            "DATABASE_URL as the service "
            "does, or run `manage.py setup` to begin a new installation."
        ]
    return [_of_key(name) for name in fingerprints.find_changed_keys(stored)]


def _of_key(name: str) -> str:
    path, variable = settings.VAR_DIR / "keys" / name, secret_keys.KEY_VARIABLES[name]
    wrong = (
        f"The key {name} that this database was written with is not in {path}, and {variable} is "
        "not set"
        if name in settings.GATEBOOK_NEW_KEYS
        else f"The key {name} in {variable if os.environ.get(variable) else path} "
        "is not the one that this database was written with"
    )
    return (
        f"{wrong}. Restore the file from the backup, or set {variable} to the key of the other "
        f"nodes. If it is lost for good, `manage.py replace_key {name}` says what is lost with it."
    )


def describe_database_location() -> str:
    """Describe where the database is, without secrets."""
    configured = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"the SQLite file {configured['NAME']}"
    host, port = configured.get("HOST") or "this machine", configured.get("PORT")
    return f"the PostgreSQL database {configured['NAME']} on {host}{f':{port}' if port else ''}"


def read_installation_note() -> InstallationNote | None:
    """Return what the folder records about its database, or None."""
    path: Path = settings.VAR_DIR / NOTE
    if not path.exists():
        return None
    identity, _, where = path.read_text(encoding="utf-8").partition("\n")
    return InstallationNote(identity.strip(), where.strip())


def record_installation() -> bool:
    """Store new keys, fingerprints and the note; True for a new installation.

    Call it when `find_installation_faults` is empty and the database is migrated. Raises ValueError
    where another process stored other keys first.
    """
    is_new = fingerprints.INSTALLATION_NAME not in fingerprints.load_fingerprints()
    for name, key in settings.GATEBOOK_NEW_KEYS.items():
        # Stored first: a key that the database knows must not be lost.
        if secret_keys.store_key(settings.VAR_DIR / "keys", name, key) != key:
            raise ValueError(
                "Another process made the keys at the same moment. Run the command again."
            )
    stored = fingerprints.record_fingerprints()
    for sentence in map(_of_key, fingerprints.find_changed_keys(stored)):
        raise ValueError(sentence)
    content = f"{stored[fingerprints.INSTALLATION_NAME]}\n{describe_database_location()}\n"
    path: Path = settings.VAR_DIR / NOTE
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.write_text(content, encoding="utf-8")
    return is_new


def _is_missing() -> bool:
    """Return True where SQLite's file does not exist. Connecting would create it."""
    return (
        connection.vendor == "sqlite" and not Path(str(connection.settings_dict["NAME"])).exists()
    )
