"""Start-up checks: settings that could lose an answered 2xx or change history.

The supervisor calls `find_unsafe_start_reasons` before it serves anything; `manage.py check
--database default` reports the same findings.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from django.apps.config import AppConfig
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

MIN_POSTGRESQL = 14
SQLITE_FULL = 2
MIGRATIONS, JOURNAL = "django_migrations", "journal_entry"
MOUNTS = Path("/proc/self/mounts")
# File systems whose locks or write order hold only on one machine, by the kernel's type name.
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
    }
    | {"smb", "smb2", "smb3", "smbfs", "vboxsf", "prl_fs"}
)
NETWORK_FUSE = frozenset(
    {
        "sshfs",
        "glusterfs",
        "s3fs",
        "rclone",
        "gcsfuse",
        "davfs2",
        "juicefs",
        "moosefs",
        "cephfs",
        "curlftpfs",
    }
    | {"smbnetfs", "goofys", "blobfuse", "blobfuse2", "vmhgfs-fuse", "grpcfuse"}
)


def find_unsafe_start_reasons(connection: BaseDatabaseWrapper) -> list[str]:
    """Return one sentence per reason not to start on this database.

    Each sentence says what to change. Raises OperationalError when the database cannot be reached.
    """
    try:
        connection.ensure_connection()
    except NotSupportedError as reason:
        return [
            f"{reason}. Move the data to PostgreSQL {MIN_POSTGRESQL} or newer and point "
            "DATABASE_URL there."
        ]
    return [
        *find_unusable_anchors(),
        *find_unsafe_settings(connection),
        *find_unguarded_history(connection),
        *find_needless_rights(connection),
        *find_foreign_schema(connection),
        *find_unrepeated_erasures(connection),
    ]


def find_unsafe_settings(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the sentences about the database itself, without reading tables."""
    if connection.vendor == "postgresql":
        return _postgresql(connection)
    if connection.vendor == "sqlite":
        return _sqlite(connection)
    return [
        f"Gatebook runs on SQLite and PostgreSQL, not on {connection.vendor}. Change DATABASE_URL."
    ]


def find_unusable_anchors() -> list[str]:
    """Return the sentences about GATEBOOK_ANCHORS; nothing is connected to."""
    from proofs.anchors import anchor_settings

    return anchor_settings.load_anchor_settings().faults


def find_unguarded_history(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence that names missing triggers, if any."""
    from db import triggers

    missing = triggers.find_missing_triggers(connection)
    if not missing:
        return []
    return [
        f"The record is not guarded: the triggers {', '.join(missing)} are missing. "
        "Run `manage.py migrate` as the owner of the tables; it puts them back."
    ]


def find_needless_rights(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence that names rights by which the application could change history."""
    from db.postgres import excess_rights

    excess = excess_rights.find_excess_rights(connection)
    if not excess:
        return []
    return [
        "The application's role of the database can change history or remove its guards: "
        f"{'; '.join(excess)}. Find who did it. `manage.py setup` takes back rights on tables; "
        "undo the rest as a superuser. Then compare the rows with the journal: `manage.py rebuild "
        "--check`."
    ]


def find_foreign_schema(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence that names the first differences from this version's tables."""
    from db import schema_inventory

    differences = schema_inventory.find_schema_differences(connection)
    if not differences:
        return []
    if differences == schema_inventory.list_additions(differences):
        return [
            "The tables do or show something else than this version's: "
            f"{schema_inventory.summarize_differences(differences)}. "
            "Find who made them so, remove this as the owner of the tables, run `manage.py "
            "migrate`, then compare the rows with the journal: `manage.py rebuild --check`."
        ]
    return [
        "The tables are not those of this version: "
        f"{schema_inventory.summarize_differences(differences)}. "
        "Start the version of Gatebook that made this database, or begin with an empty one and "
        "import bundles."
    ]


def find_unrepeated_erasures(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence if the erasure journal is ahead of the database, as after a restore."""
    from erasure import erasure_journal, erasure_replay

    path = erasure_journal.journal_path()
    tables = {"erasure_erasurerequest", "journal_entry"}
    if not path.exists() or not tables <= set(connection.introspection.table_names()):
        return []
    missing = len(erasure_replay.find_missing_erasures())
    missing += len(erasure_replay.find_returned_bodies())
    if not missing:
        return []
    return [
        f"The erasure journal {path} is ahead of the database: {missing} erasures are not"
        " carried out here. Run `manage.py replay_erasures` before you start Gatebook."
    ]


def find_network_file_system(path: str | os.PathLike[str], mounts: str) -> str | None:
    """Return the type of the network file system of `path`; None for a local one.

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
    sentences: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'), "
            "current_setting('full_page_writes'), current_setting('server_encoding'), "
            "current_setting('server_version_num')::int"
        )
        fsync, synchronous_commit, full_page_writes, encoding, version = cursor.fetchone()
    if version < MIN_POSTGRESQL * 10000:
        sentences.append(
            f"PostgreSQL {version // 10000} is too old. "
            f"Move the data to PostgreSQL {MIN_POSTGRESQL} or newer and point DATABASE_URL "
            "there."
        )
    for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes)):
        if value == "off":
            sentences.append(
                f"PostgreSQL runs with {name} off, so a crash can lose or corrupt what was "
                f"answered as stored. Set {name} = on in postgresql.conf and reload the server."
            )
    if synchronous_commit == "off":
        sentences.append(
            "PostgreSQL runs with synchronous_commit off, so a crash can lose what was answered "
            "as stored. Set synchronous_commit = on in postgresql.conf (or ALTER ROLE … RESET "
            "synchronous_commit) and reload."
        )
    if encoding != "UTF8":
        sentences.append(
            f"The database is encoded in {encoding} and cannot hold every text. "
            "Create one with ENCODING 'UTF8' and point DATABASE_URL there."
        )
    return sentences


def _sqlite(connection: BaseDatabaseWrapper) -> list[str]:
    sentences: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous")
        (synchronous,) = cursor.fetchone()
    if synchronous < SQLITE_FULL:
        sentences.append(
            "SQLite runs with synchronous below FULL, so a power cut can lose what was answered "
            "as stored. Remove the PRAGMA synchronous from the connection's options, or set it "
            "to FULL."
        )
    mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if MOUNTS.exists() else ""
    name = str(connection.settings_dict["NAME"])
    kind = find_network_file_system(name, mounts)
    if kind:
        sentences.append(
            f"The SQLite file {name} lies on a network file system ({kind}), where its locks do "
            "not hold. Set GATEBOOK_VAR to a folder on a local disk, or use PostgreSQL by "
            "DATABASE_URL."
        )
    return sentences


def register_checks() -> None:
    """Add the findings to Django's system checks (`check --database`)."""
    checks.register(_check, checks.Tags.database)


def _check(
    *,
    app_configs: Sequence[AppConfig] | None = None,
    databases: Sequence[str] | None = None,
    **kwargs: object,
) -> list[checks.CheckMessage]:
    if DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    connection = connections[DEFAULT_DB_ALIAS]
    messages: list[checks.CheckMessage] = [
        checks.Error(sentence, id="gatebook.E001") for sentence in find_unsafe_settings(connection)
    ]
    messages += [checks.Error(sentence, id="gatebook.E002") for sentence in find_unusable_anchors()]
    tables = set(connection.introspection.table_names())
    if JOURNAL in tables:  # an empty database has nothing to guard
        # Only a warning, because `migrate`, which installs missing triggers, runs these checks too.
        messages += [
            checks.Warning(sentence, id="gatebook.W001")
            for sentence in find_unguarded_history(connection)
        ]
    if MIGRATIONS in tables:
        # An empty database is not another version's.
        messages += [
            checks.Warning(sentence, id="gatebook.W002")
            for sentence in find_foreign_schema(connection)
        ]
        messages += [
            checks.Warning(sentence, id="gatebook.W003")
            for sentence in find_unrepeated_erasures(connection)
        ]
        messages += [
            checks.Warning(sentence, id="gatebook.W004")
            for sentence in find_needless_rights(connection)
        ]
    return messages
