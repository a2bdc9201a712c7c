"""Whether the files in GATEBOOK_VAR, the keys and the database belong together; what does not is refused.

`manage.py setup` makes the keys, records their fingerprints in the database and notes in `<var>/installation` which
database the files belong to. Everything else only compares: it never makes a key, and no empty database takes the
place of one that is elsewhere.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

from django.conf import settings
from django.core.management import get_commands
from django.db import DatabaseError, connection

from config import keys
from journal import fingerprints

NOTE: Final = "installation"
# They make no use of the installation, or (`setup`, `replace_key`) compare for themselves.
_FREE: Final = frozenset({"setup", "replace_key", "record_schema", "policies_schema", "describe_search"})
# Django's own commands work wherever they did, but not on somebody else's database.
_COMPARED: Final = frozenset({"migrate", "shell", "dbshell", "loaddata", "flush", "sqlflush"})
_OF_PEOPLE: Final = frozenset({"changepassword", "createsuperuser", "clearsessions"})


class Note(NamedTuple):
    """What `<var>/installation` says: the id of the installation, and where its database was."""

    identity: str
    place: str


def refuse_command(arguments: list[str]) -> None:
    """Exit with a sentence where the command of manage.py would work on what does not belong together."""
    name = arguments[1] if len(arguments) > 1 else ""
    application = get_commands().get(name)
    if application is None or {"-h", "--help", "--url"} & set(arguments):  # with --url it speaks to another machine
        return
    ours = not application.startswith("django.")
    if name == "search" and settings.GATEBOOK_NEW_KEYS:
        return  # an auditor reads under a role of the database, and has no keys
    if name in _FREE or not (ours or name in _COMPARED | _OF_PEOPLE):
        return
    needs = (ours and not application.startswith("whitenoise")) or name in _OF_PEOPLE
    for sentence in refusals(must_exist=needs):
        raise SystemExit(f"gatebook: {sentence}")


def refusals(*, must_exist: bool = True) -> list[str]:
    """Return a sentence for each reason not to work here. Without `must_exist` nothing may have been set up yet."""
    note = read_note()
    try:
        known = {} if _is_missing() else fingerprints.recorded()
    except DatabaseError:
        return []  # whoever uses it says so
    if note is not None and fingerprints.INSTALLATION not in known:
        return [
            f"The files in {settings.VAR_DIR} belong to an installation in {note.place}, and the database in use "
            f"({place()}) holds none. Set DATABASE_URL as the service does, or restore the database. "
            f"To begin a new installation set GATEBOOK_VAR to an empty folder."
        ]
    if note is not None and note.identity != known[fingerprints.INSTALLATION]:
        return [
            f"The files in {settings.VAR_DIR} belong to an installation in {note.place}, and the database in use "
            f"({place()}) belongs to another. Set GATEBOOK_VAR and DATABASE_URL as the service does."
        ]
    if must_exist and fingerprints.INSTALLATION not in known:
        return [
            f"Nothing is set up in {place()}. Set GATEBOOK_VAR and DATABASE_URL as the service does, "
            "or run `manage.py setup` to begin a new installation."
        ]
    return [_of_key(name) for name in fingerprints.foreign_keys(known)]


def _of_key(name: str) -> str:
    path, variable = settings.VAR_DIR / "keys" / name, keys.KEY_VARIABLES[name]
    wrong = (
        f"The key {name} that this database was written with is not in {path}, and {variable} is not set"
        if name in settings.GATEBOOK_NEW_KEYS
        else f"The key {name} in {variable if os.environ.get(variable) else path} "
        "is not the one that this database was written with"
    )
    return (
        f"{wrong}. Restore the file from the backup, or set {variable} to the key of the other nodes. "
        f"If it is lost for good, `manage.py replace_key {name}` says what is lost with it."
    )


def place() -> str:
    """Where the database is, in words without a secret."""
    configured = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"the SQLite file {configured['NAME']}"
    host, port = configured.get("HOST") or "this machine", configured.get("PORT")
    return f"the PostgreSQL database {configured['NAME']} on {host}{f':{port}' if port else ''}"


def read_note() -> Note | None:
    """What the folder says of its database; None where it says nothing."""
    path: Path = settings.VAR_DIR / NOTE
    if not path.exists():
        return None
    identity, _, where = path.read_text(encoding="utf-8").partition("\n")
    return Note(identity.strip(), where.strip())


def settle() -> bool:
    """Store keys that are new, record the fingerprints and write the note; True for a new installation.

    Call it after `refusals` said nothing and the database is migrated. Raises ValueError where another process was
    quicker with other keys.
    """
    is_new = fingerprints.INSTALLATION not in fingerprints.recorded()
    for name, key in settings.GATEBOOK_NEW_KEYS.items():
        # Stored first: what the database knows must not be lost.
        if keys.store(settings.VAR_DIR / "keys", name, key) != key:
            raise ValueError("Another process made the keys at the same moment. Run the command again.")
    known = fingerprints.record()
    for sentence in map(_of_key, fingerprints.foreign_keys(known)):
        raise ValueError(sentence)
    text = f"{known[fingerprints.INSTALLATION]}\n{place()}\n"
    path: Path = settings.VAR_DIR / NOTE
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return is_new


def _is_missing() -> bool:
    """True where SQLite's file does not exist: to look into it would make it."""
    return connection.vendor == "sqlite" and not Path(str(connection.settings_dict["NAME"])).exists()
