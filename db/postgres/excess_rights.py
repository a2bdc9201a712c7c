"""Finds rights of the application's role beyond those that db/postgres/grants.py grants.

With such a right a hijacked application changes history or removes its guards. A single role owns
the tables by choice: there is nothing to find, except that its triggers do not run.
"""

from collections import defaultdict
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper

from db.postgres import grants

_NAMED: Final = 5  # tables that a message lists
# They reach the tables, or the files and programs of the server.
_POWERFUL_ROLES: Final = (
    "pg_write_all_data",
    "pg_write_server_files",
    "pg_execute_server_program",
)
_SESSION: Final = (
    "SELECT session_user::text, current_user::text, current_setting('session_replication_role'),"
    " current_setting('server_version_num')::int"
)
# `setup` grants rights to the role on tables and functions of another role.
_IS_GRANTED: Final = """
SELECT EXISTS (
  SELECT FROM pg_class c, aclexplode(c.relacl) acl JOIN pg_roles r ON r.oid = acl.grantee
  WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY(%(tables)s::name[])
    AND r.rolname = %(role)s AND r.oid <> c.relowner
) OR EXISTS (
  SELECT FROM pg_proc p, aclexplode(p.proacl) acl JOIN pg_roles r ON r.oid = acl.grantee
  WHERE p.pronamespace = current_schema()::regnamespace
    AND p.proname = 'journal_drop_body_partition'
    AND r.rolname = %(role)s AND r.oid <> p.proowner
)
"""
# The role, and those that it can become by SET ROLE.
_ROLES: Final = """
SELECT r.rolname, r.rolsuper, r.rolcreaterole,
  ARRAY(SELECT c.relname::text FROM pg_class c
        WHERE c.relowner = r.oid AND c.relnamespace = current_schema()::regnamespace
          AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') ORDER BY 1)
  || ARRAY(SELECT p.proname || '()' FROM pg_proc p
           WHERE p.proowner = r.oid AND p.pronamespace = current_schema()::regnamespace ORDER BY 1)
  || ARRAY(SELECT 'schema ' || n.nspname FROM pg_namespace n
           WHERE n.nspowner = r.oid AND n.oid = current_schema()::regnamespace)
  || ARRAY(SELECT 'database ' || d.datname FROM pg_database d
           WHERE d.datdba = r.oid AND d.datname = current_database())
FROM pg_roles r WHERE pg_has_role(%(role)s::name, r.oid, 'MEMBER') ORDER BY r.rolname <> %(role)s, 1
"""
_RIGHTS: Final = """
SELECT c.relname, c.relispartition, acl.privilege_type
FROM pg_class c, aclexplode(c.relacl) acl
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
  AND acl.grantee <> c.relowner
  AND (acl.grantee = 0 OR pg_has_role(%(role)s::name, acl.grantee, 'MEMBER'))
UNION
SELECT c.relname, c.relispartition, acl.privilege_type
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid, aclexplode(a.attacl) acl
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
  AND acl.grantee <> c.relowner
  AND (acl.grantee = 0 OR pg_has_role(%(role)s::name, acl.grantee, 'MEMBER'))
"""
_REPLICATION_SETTINGS: Final = """
SELECT split_part(setting, '=', 2) FROM pg_db_role_setting stored, unnest(setconfig) setting
WHERE setting LIKE 'session_replication_role=%%'
  AND stored.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
  AND stored.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = %(role)s))
"""
# From PostgreSQL 15 on a role can get the right to set it.
_MAY_SET: Final = (
    "SELECT NOT rolsuper"
    " AND has_parameter_privilege(%(role)s::name, 'session_replication_role', 'SET')"
    " FROM pg_roles WHERE rolname = %(role)s"
)


def find_excess_rights(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the rights that the application's role should not have, in words.

    Also a session whose triggers do not run, even with a single role.
    """
    if connection.vendor != "postgresql":
        return []
    ((login, current, replication, version),) = _fetch(connection, _SESSION, {})
    role = settings.APPLICATION_ROLE or login
    tables = sorted({model._meta.db_table for model in apps.get_models(include_auto_created=True)})
    terms = {"role": role, "tables": [*tables, "django_migrations"]}
    excess = []
    if _has_two_roles(connection, terms):
        if current != login and role == login:
            excess.append(f"it acts as {current}")
        excess += _find_memberships(connection, terms)
        excess += _find_table_rights(connection, terms)
        if version >= 150000 and _fetch(connection, _MAY_SET, terms) == [(True,)]:
            excess.append("it may set session_replication_role")
        stored = {value for (value,) in _fetch(connection, _REPLICATION_SETTINGS, terms)}
        replication = next(iter(sorted(stored - {"origin"})), replication)
    if replication != "origin":
        excess.append(f"its session_replication_role is {replication}: triggers do not run")
    return excess


def _has_two_roles(connection: BaseDatabaseWrapper, terms: dict[str, Any]) -> bool:
    """Return True if the role exists and is not the owner of the tables by choice."""
    if not _fetch(connection, "SELECT 1 FROM pg_roles WHERE rolname = %(role)s", terms):
        return False
    if settings.OWNER_ROLE not in ("", terms["role"]):
        return True
    return _fetch(connection, _IS_GRANTED, terms) == [(True,)]


def _find_memberships(connection: BaseDatabaseWrapper, terms: dict[str, Any]) -> list[str]:
    """Return what the role owns and may do by itself, and which powerful roles it can become."""
    excess = []
    for name, is_superuser, creates_roles, owned in _fetch(connection, _ROLES, terms):
        if name == terms["role"]:
            if is_superuser:
                return ["it is a superuser"]  # and so a member of every role
            if creates_roles:
                excess.append("it may create roles")
            if owned:
                excess.append(f"it owns {_list_first(owned)}")
        elif is_superuser:
            excess.append(f"it is a member of {name}, a superuser")
        elif owned:
            excess.append(f"it is a member of {name}, which owns {_list_first(owned)}")
        elif name in _POWERFUL_ROLES:
            excess.append(f"it is a member of {name}")
    return excess


def _find_table_rights(connection: BaseDatabaseWrapper, terms: dict[str, Any]) -> list[str]:
    """Return the rights that were granted on tables, columns and partitions."""
    tables: dict[str, set[str]] = defaultdict(set)  # rights -> tables
    granted: dict[str, set[str]] = defaultdict(set)
    for table, is_partition, right in _fetch(connection, _RIGHTS, terms):
        if not is_partition and table not in terms["tables"]:
            continue  # another program's
        allowed = () if is_partition else grants.list_table_rights(table)
        if right in grants.CHANGING_RIGHTS and right not in allowed:
            granted[table].add(right)
    for table, rights in granted.items():
        names = ", ".join(right for right in grants.CHANGING_RIGHTS if right in rights)
        tables[names].add(table)
    return [f"{names} on {_list_first(sorted(of))}" for names, of in sorted(tables.items())]


def _list_first(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _fetch(
    connection: BaseDatabaseWrapper, statement: str, terms: dict[str, Any]
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, terms)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
