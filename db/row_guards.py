"""Triggers that let a row change only with the journal entry that says so.

A row that decides (a role, a token, a vote, a stop) follows from the journal. A guard refuses a
change of it, by any writer of the database, unless its entry was written first. On PostgreSQL the
entry is of the same transaction. SQLite has no number of a transaction: there the row must agree
with the newest entry about it, so that no older entry can be used a second time.

Conditions are SQL with placeholders, which `render_guard_sql` replaces:

* `{schema}` before each table, `{distinct}` between two values that may be NULL;
* `{fact:name}` is a fact of the row called `entry`, as text, `''` if absent;
* `{text:expression}` is a value as such a text, `{hex:expression}` a UUID;
* `{only:vendor}` and `{end:vendor}` enclose what holds on one vendor only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from db.triggers import TriggerSet

# The condition of the index entry_by_kind: SQLite uses it only where a query has it literally.
_IS_RARE: Final = (
    "NOT ({alias}.kind IN ('effect.planned', 'effect.dispatched', 'effect.acknowledged',"
    " 'effect.failed'))"
)
_FACT: Final = re.compile(r"\{fact:(\w+)\}")
_NEWER_FACT: Final = re.compile(r"\{fact_of_newer:(\w+)\}")
_EXPRESSION: Final = r"((?:[^{}]|\{schema\})+)"
_TEXT: Final = re.compile(rf"\{{text:{_EXPRESSION}\}}")
_HEX: Final = re.compile(rf"\{{hex:{_EXPRESSION}\}}")
_VENDOR_PART: Final = re.compile(r"\{only:(\w+)\}(.*?)\{end:\1\}", re.DOTALL)


@dataclass(frozen=True)
class RowGuard:
    """One trigger: `refused` is the condition of a change that the database refuses.

    `event` is INSERT, UPDATE or DELETE. An UPDATE that names none of `columns` is free of cost;
    `when` limits the trigger to rows that the condition concerns. Guards that read the journal run
    after the change, so that uniqueness and checks are reported first.
    """

    name: str
    table: str
    event: str
    refused: str
    message: str
    columns: tuple[str, ...] = ()
    when: str = ""
    moment: str = "AFTER"


def entry_says(
    kind: str | Sequence[str],
    *,
    project: str,
    subject: str,
    among: Sequence[str] = (),
    position: str = "",
    once: bool = False,
    where: str = "",
    about: str = "",
    lane: str = "system",
) -> str:
    """Return the condition that an entry of `kind` says so, as SQL about the row called `entry`.

    `project`, `subject` and `position` are SQL of the row; an empty `project` stands for any one,
    and `position` is given where the row names its entry. `where` compares facts. `among` are all
    kinds about the row's state, of which SQLite takes the newest; `about` tells apart the rows of
    one subject, with facts of `entry`. `once` is for a change that happens to a row once, so that
    no entry can be used again.
    """
    kinds = (kind,) if isinstance(kind, str) else tuple(kind)
    of_project = f"= {project}" if project else "IN (SELECT id FROM {schema}accounts_project)"
    conditions = [f"entry.project {of_project}", f"entry.kind IN {_quote_all(kinds)}"]
    if subject:
        conditions.append(f"entry.subject = {subject}")
    if lane:
        conditions.append(f"entry.lane = '{lane}'")
    if where:
        conditions.append(f"({where})")
    if about:
        conditions.append(f"({about})")
    conditions.append(
        "{only:postgresql}entry.txid = pg_current_xact_id(){end:postgresql}"
        "{only:sqlite}TRUE{end:sqlite}"
    )
    if position:
        conditions.insert(0, f"entry.position = {position}")
    else:
        conditions.insert(2, _IS_RARE.format(alias="entry"))
        if not once:
            newest = [
                f"newer.project {of_project}",
                f"newer.kind IN {_quote_all(tuple(among) or kinds)}",
                _IS_RARE.format(alias="newer"),
                "newer.position > entry.position",
            ]
            if subject:
                newest.append(f"newer.subject = {subject}")
            if about:
                newest.append(f"({about.replace('{fact:', '{fact_of_newer:')})")
            conditions.append(
                "{only:postgresql}TRUE{end:postgresql}{only:sqlite}NOT EXISTS (SELECT 1 FROM"
                f" {{schema}}journal_entry newer WHERE {' AND '.join(newest)}){{end:sqlite}}"
            )
    return f"EXISTS (SELECT 1 FROM {{schema}}journal_entry entry WHERE {' AND '.join(conditions)})"


def list_changes(columns: Sequence[str]) -> str:
    """Return the condition that an UPDATE changes one of `columns`."""
    return " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in columns)


def render_guard_sql(condition: str, vendor: str) -> str:
    """Return `condition` in the dialect of `vendor`."""
    sql = _VENDOR_PART.sub(lambda part: part[2] if part[1] == vendor else "", condition)
    for alias, pattern in (("entry", _FACT), ("newer", _NEWER_FACT)):
        read = (
            rf"COALESCE(CAST({alias}.facts AS jsonb) ->> '\1', '')"
            if vendor == "postgresql"
            else rf"COALESCE(CAST(json_extract({alias}.facts, '$.\1') AS text), '')"
        )
        sql = pattern.sub(read, sql)
    sql = _HEX.sub(r"COALESCE(REPLACE(CAST(\1 AS text), '-', ''), '')", sql)
    sql = _TEXT.sub(r"COALESCE(CAST(\1 AS text), '')", sql)
    return sql.replace("{schema}", "{schema}." if vendor == "postgresql" else "").replace(
        "{distinct}", "DISTINCT FROM" if vendor == "postgresql" else "NOT"
    )


def build_guards(
    guards: Sequence[RowGuard],
    unique_keys: Mapping[str, Sequence[Sequence[str]]],
    needs: Sequence[str] = (),
    *,
    skips: bool = False,
) -> TriggerSet:
    """Return the triggers of `guards`.

    `unique_keys` are the tables whose rows no TRUNCATE and no INSERT OR REPLACE removes, with the
    unique columns of each. With `skips`, SQLite skips an insert of an existing row, as its writer
    does by ON CONFLICT DO NOTHING.
    """
    postgresql: dict[str, tuple[str, str]] = {}
    sqlite: dict[str, tuple[str, str]] = {}
    functions: list[str] = []
    for guard in guards:
        of = f" OF {', '.join(guard.columns)}" if guard.columns else ""
        head = f"{guard.moment} {guard.event}{of} ON {guard.table}"
        text = f"{guard.name}: {guard.message}".replace("'", "''")
        when = render_guard_sql(guard.when, "postgresql")
        test = render_guard_sql(guard.refused, "postgresql") or "TRUE"
        functions.append(f"""
CREATE OR REPLACE FUNCTION guard_{guard.name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {test} THEN
    RAISE EXCEPTION '{text}' USING ERRCODE = 'check_violation';
  END IF;
  RETURN {"OLD" if guard.event == "DELETE" else "NEW"};
END $$;""")
        postgresql[guard.name] = (
            guard.table,
            f"{head} FOR EACH ROW{f' WHEN ({when})' if when else ''}"
            f" EXECUTE FUNCTION guard_{guard.name}()",
        )
        both = [
            f"({part})"
            for part in (
                render_guard_sql(guard.when, "sqlite"),
                render_guard_sql(guard.refused, "sqlite"),
            )
            if part
        ]
        condition = f" WHEN {' AND '.join(both)}" if both else ""
        sqlite[guard.name] = (
            guard.table,
            f"{head}{condition} BEGIN SELECT RAISE(ABORT, '{text}'); END",
        )
    functions.append("""
CREATE OR REPLACE FUNCTION guard_refuses_truncation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is never truncated: its rows follow the journal', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$;""")
    for table, keys in unique_keys.items():
        postgresql[f"{table}_is_never_truncated"] = (
            table,
            f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT"
            " EXECUTE FUNCTION guard_refuses_truncation()",
        )
        sqlite.update(_keep_replaced_rows(table, keys, skips))
    return TriggerSet(postgresql, "".join(functions), sqlite, ("journal_entry", *needs))


def _keep_replaced_rows(
    table: str, keys: Sequence[Sequence[str]], skips: bool
) -> dict[str, tuple[str, str]]:
    """Return SQLite's triggers against INSERT OR REPLACE and UPDATE OR REPLACE.

    They remove a row without its DELETE triggers, where recursive_triggers is off.
    """
    triggers = {
        f"{table}_keeps_its_rowid": (
            table,
            f"BEFORE UPDATE ON {table} WHEN NEW.rowid <> OLD.rowid BEGIN SELECT RAISE(ABORT,"
            f" '{table}_keeps_its_rowid: UPDATE OR REPLACE would remove another row'); END",
        )
    }
    for columns in (*keys, ("rowid",)):
        same_values = " AND ".join(f"{name} = NEW.{name}" for name in columns)
        message = ", ".join(f"{table}.{name}" for name in columns)
        fault = "IGNORE" if skips else f"ABORT, 'UNIQUE constraint failed: {message}'"
        triggers[f"{table}_{'_'.join(columns)}_is_never_replaced"] = (
            table,
            f"BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE {same_values})"
            f" BEGIN SELECT RAISE({fault}); END",
        )
    return triggers


def _quote_all(names: Sequence[str]) -> str:
    return f"({', '.join(repr(name) for name in names)})"
