"""Grants for two PostgreSQL roles, owner and application.

The owner migrates. The application adds to history and never changes it.

With `DATABASE_OWNER_URL` set, `manage.py setup` runs as the owner and then grants the role of
`DATABASE_URL` what it needs. Triggers reject changes of history anyway; the grants also keep a
compromised application from dropping the triggers.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

from db import triggers

# The application may delete bodies; a trigger requires an erasure that names them.
ERASABLE = frozenset({"journal_body"})
# What only the owner may do, in a form that the application may call (journal/body_partitions.py).
_FUNCTIONS = ("journal_make_body_partitions()", "journal_drop_body_partition(bigint)")


def grant_application_role(connection: BaseDatabaseWrapper, role: str) -> None:
    """Grant `role` what the application needs; run as the owner. Idempotent."""
    name = connection.ops.quote_name(role)
    statements = [
        f"GRANT USAGE ON SCHEMA public TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {name}",
        f"REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {name}",
    ]
    for table in triggers.find_append_only_tables():
        kept = "UPDATE" if table in ERASABLE else "UPDATE, DELETE"
        statements.append(f"REVOKE {kept} ON {connection.ops.quote_name(table)} FROM {name}")
    for parts in triggers.load_table_partitions(connection).values():  # reached by their table only
        statements += [f"REVOKE ALL ON {part} FROM {name}" for part in parts]
    for function in _FUNCTIONS:  # a restored dump lets everyone call them
        statements.append(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
        statements.append(f"GRANT EXECUTE ON FUNCTION {function} TO {name}")
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
