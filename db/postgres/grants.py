"""Grants for two PostgreSQL roles, owner and application.

The owner migrates. The application adds to history and never changes it.

With `DATABASE_OWNER_URL` set, `manage.py setup` runs as the owner and then grants the role of
`DATABASE_URL` what it needs. Triggers reject changes of history anyway; the grants also keep a
compromised application from dropping the triggers.
"""

from typing import Final

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from db import triggers

# The application may delete bodies; a trigger requires an erasure that names them.
ERASABLE = frozenset({"journal_body"})
_MIGRATIONS: Final = "django_migrations"
# Rights by which a role changes rows, or what happens to them.
CHANGING_RIGHTS: Final = ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
_TABLE_RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
# What only the owner may do, in a form that the application may call (journal/body_partitions.py).
_FUNCTIONS = ("journal_make_body_partitions()", "journal_drop_body_partition(bigint)")


def list_table_rights(table: str) -> list[str]:
    """Return the rights of the application's role on a table that is no partition."""
    if table == _MIGRATIONS:
        return ["SELECT"]
    withheld = set()
    if table in triggers.find_append_only_tables():
        withheld = {"UPDATE"} if table in ERASABLE else {"UPDATE", "DELETE"}
    return [right for right in _TABLE_RIGHTS if right not in withheld]


def grant_application_role(connection: BaseDatabaseWrapper, role: str) -> None:
    """Grant `role` what the application needs, and no more; run as the owner. Idempotent."""
    name = connection.ops.quote_name(role)
    statements = [
        f"GRANT USAGE ON SCHEMA public TO {name}",
        f"GRANT {', '.join(_TABLE_RIGHTS)} ON ALL TABLES IN SCHEMA public TO {name}",
        f"REVOKE TRUNCATE, REFERENCES, TRIGGER ON ALL TABLES IN SCHEMA public FROM {name}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {name}",
    ]
    for table in (_MIGRATIONS, *triggers.find_append_only_tables()):
        kept = list_table_rights(table)
        withheld = ", ".join(right for right in CHANGING_RIGHTS if right not in kept)
        table_name = connection.ops.quote_name(table)
        statements.append(f"REVOKE {withheld} ON {table_name} FROM {name}")
    for parts in triggers.load_table_partitions(connection).values():  # reached by their table only
        statements += [f"REVOKE ALL ON {part} FROM {name}" for part in parts]
    for function in _FUNCTIONS:  # a restored dump lets everyone call them
        statements.append(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
        statements.append(f"GRANT EXECUTE ON FUNCTION {function} TO {name}")
    # One transaction: the role never has UPDATE on history in between.
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
