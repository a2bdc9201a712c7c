"""What Gatebook refuses to start on: settings under which an answered 2xx could be lost or history be changed.

`refusals` is asked by the supervisor before anything is served; the same findings appear in
`manage.py check --database default`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from django.apps.config import AppConfig
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

OLDEST_POSTGRESQL = 14
SQLITE_FULL = 2
MIGRATIONS = "django_migrations"
MOUNTS = Path("/proc/self/mounts")
# File systems whose locks or write order hold only within one machine, by the type the kernel gives them.
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
    | {"smb", "smb2", "smb3", "smbfs", "vboxsf", "prl_fs"}
)
NETWORK_FUSE = frozenset(
    {"sshfs", "glusterfs", "s3fs", "rclone", "gcsfuse", "davfs2", "juicefs", "moosefs", "cephfs", "curlftpfs"}
    | {"smbnetfs", "goofys", "blobfuse", "blobfuse2", "vmhgfs-fuse", "grpcfuse"}
)


def refusals(connection: BaseDatabaseWrapper) -> list[str]:
    """Return one sentence per reason not to start on this database, each saying what to change; empty when it is safe.

    Raises OperationalError when the database cannot be reached at all.
    """
    try:
        connection.ensure_connection()
    except NotSupportedError as reason:
        return [f"{reason}. Move the data to PostgreSQL {OLDEST_POSTGRESQL} or newer and point DATABASE_URL there."]
    return [*unsafe_settings(connection), *unguarded_history(connection), *foreign_schema(connection)]


def unsafe_settings(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the sentences about the database itself, without looking at tables."""
    if connection.vendor == "postgresql":
        return _postgresql(connection)
    if connection.vendor == "sqlite":
        return _sqlite(connection)
    return [f"Gatebook runs on SQLite and PostgreSQL, not on {connection.vendor}. Change DATABASE_URL."]


def unguarded_history(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence naming the triggers of the law that the database lacks, if it lacks any."""
    from journal import triggers

    missing = triggers.missing(connection)
    if not missing:
        return []
    return [
        f"The record is not guarded: the triggers {', '.join(missing)} are missing. "
        "Run `manage.py migrate` as the owner of the tables; it puts them back."
    ]


def foreign_schema(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence that names the first differences between the tables and what this version makes."""
    from journal import inventory

    found = inventory.differences(connection)
    if not found:
        return []
    return [
        f"The tables are not those of this version: {inventory.sentence(found)}. "
        "Start the version of Gatebook that made this database, or begin with an empty one and import bundles."
    ]


def network_file_system(path: str | os.PathLike[str], mounts: str) -> str | None:
    """Return the type of the network file system that `path` lies on, or None when it lies on a local one.

    `mounts` is the text of /proc/self/mounts; later lines hide earlier ones at the same place.
    """
    real = os.path.realpath(path)
    longest, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # The kernel writes blanks in paths as octal escapes.
        place = fields[1].encode("latin-1", "backslashreplace").decode("unicode_escape")
        inside = place == "/" or real == place or real.startswith(place + "/")
        if inside and len(place) >= len(longest):
            longest, kind = place, fields[2]
    family, _, program = kind.partition(".")
    foreign = kind in NETWORK_FILE_SYSTEMS or (family == "fuse" and program in NETWORK_FUSE)
    return kind if foreign else None


def _postgresql(connection: BaseDatabaseWrapper) -> list[str]:
    found: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'), "
            "current_setting('full_page_writes'), current_setting('server_encoding'), "
            "current_setting('server_version_num')::int"
        )
        fsync, synchronous_commit, full_page_writes, encoding, version = cursor.fetchone()
    if version < OLDEST_POSTGRESQL * 10000:
        found.append(
            f"PostgreSQL {version // 10000} is too old. "
            f"Move the data to PostgreSQL {OLDEST_POSTGRESQL} or newer and point DATABASE_URL there."
        )
    for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes)):
        if value == "off":
            found.append(
                f"PostgreSQL runs with {name} off, so a crash can lose or corrupt what was answered as stored. "
                f"Set {name} = on in postgresql.conf and reload the server."
            )
    if synchronous_commit == "off":
        found.append(
            "PostgreSQL runs with synchronous_commit off, so a crash can lose what was answered as stored. "
            "Set synchronous_commit = on in postgresql.conf (or ALTER ROLE … RESET synchronous_commit) and reload."
        )
    if encoding != "UTF8":
        found.append(
            f"The database is encoded in {encoding} and cannot hold every text. "
            "Create one with ENCODING 'UTF8' and point DATABASE_URL there."
        )
    return found


def _sqlite(connection: BaseDatabaseWrapper) -> list[str]:
    found: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous")
        (synchronous,) = cursor.fetchone()
    if synchronous < SQLITE_FULL:
        found.append(
            "SQLite runs with synchronous below FULL, so a power cut can lose what was answered as stored. "
            "Remove the PRAGMA synchronous from the connection's options, or set it to FULL."
        )
    mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if MOUNTS.exists() else ""
    name = str(connection.settings_dict["NAME"])
    kind = network_file_system(name, mounts)
    if kind:
        found.append(
            f"The SQLite file {name} lies on a network file system ({kind}), where its locks do not hold. "
            "Set GATEBOOK_VAR to a folder on a local disk, or use PostgreSQL by DATABASE_URL."
        )
    return found


def register() -> None:
    """Add the findings to Django's system checks; they run where a database is asked for (`check --database`)."""
    checks.register(_check, checks.Tags.database)


def _check(
    *, app_configs: Sequence[AppConfig] | None = None, databases: Sequence[str] | None = None, **kwargs: object
) -> list[checks.CheckMessage]:
    if DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    connection = connections[DEFAULT_DB_ALIAS]
    found: list[checks.CheckMessage] = [
        checks.Error(sentence, id="gatebook.E001") for sentence in unsafe_settings(connection)
    ]
    # A warning only: `migrate` runs these checks too, and it is what puts missing triggers (and tables) in place.
    found += [checks.Warning(sentence, id="gatebook.W001") for sentence in unguarded_history(connection)]
    if MIGRATIONS in connection.introspection.table_names():  # an empty database is no other version's
        found += [checks.Warning(sentence, id="gatebook.W002") for sentence in foreign_schema(connection)]
    return found
