"""Two roles on PostgreSQL: the owner migrates, the application may add to history and never change it.

With `DATABASE_OWNER_URL` set, `manage.py setup` runs as the owner and then grants the role of `DATABASE_URL` what it
needs. The triggers refuse changes anyway; the grants also keep a hijacked application from dropping the triggers.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

from journal import triggers

# A body goes when an erasure names it; the trigger sees to that, so the application may delete there.
ERASABLE = frozenset({"journal_body"})


def grant(connection: BaseDatabaseWrapper, role: str) -> None:
    """Give `role` what the application needs, and no more on the tables of history. Idempotent; run it as the owner."""
    name = connection.ops.quote_name(role)
    statements = [
        f"GRANT USAGE ON SCHEMA public TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {name}",
        f"REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {name}",
    ]
    for table in triggers.HISTORY:
        kept = "UPDATE" if table in ERASABLE else "UPDATE, DELETE"
        statements.append(f"REVOKE {kept} ON {connection.ops.quote_name(table)} FROM {name}")
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
