"""The columns that the audit role of the database may read: all but those listed here.

The audit role must be able to answer who did what, when, with whose permission, and the current
state. It cannot read arguments, results, messages, free text, private notes or anything derived
from a secret. Of Django's tables it reads only the user names. A test checks that every column that
can hold long text is listed as withheld or as read, with a reason.
"""

from typing import Any, Final

from django.apps import apps
from django.db import models

APPS: Final = (
    "journal",
    "accounts",
    "sessions",
    "ledger",
    "approvals",
    "notifications",
    "monitoring",
    "investigation",
    "api",
)

WITHHELD_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "journal_body": {
        "text": "the item as sent",
        "salt": "allows guessing the text",
    },
    "agent_sessions_session": {
        "field_history": "text from the agent's reports",
        "waiting_on": "the agent's text",
        "cursor": "the agent's text",
        "labels": "the agent's text",
        "merge_intent": "the agent's text",
    },
    "agent_sessions_task": {"field_history": "text from the agent's reports"},
    "agent_sessions_item": {"key": "often names a person"},
    "accounts_agent": {"charter": "instructions written by people"},
    "accounts_agenttoken": {"digest": "derived from a secret"},
    "agent_sessions_artifact": {"uri": "addresses may contain secrets"},
    "agent_sessions_checkpoint": {
        "cache_keys": "the agent's state",
        "cursor": "the agent's text",
        "pins": "the agent's state",
    },
    "agent_sessions_handoff": {"waits_on": "the agent's text"},
    "notifications_notificationchannel": {"target": "addresses of people and webhooks"},
    "monitoring_stuckepisode": {"says": "quotes calls and their results"},
    "ledger_usedname": dict.fromkeys(
        ("name", "skeleton", "head", "middle", "tail"), "names in arguments: addresses, accounts"
    ),
    "investigation_effecttext": {"words": "the words of arguments, results and reasons"},
    "investigation_importedbundle": {"document": "complete texts of another journal"},
    "investigation_importedgate": {"document": "complete texts of another journal"},
    "investigation_savedquery": {"name": "may be private", "text": "may be private"},
    "investigation_alert": {
        "text": "may be private",
        "matched_positions": "matches of a query that may be private",
        "stopped_because": "may quote it",
    },
    "investigation_export": {"text": "a person's query; recorded in a body"},
    "api_storedresponse": {"body": "the response to an agent"},
}
DJANGO_COLUMNS: Final = {"auth_user": ("id", "username")}


def readable_columns() -> dict[str, list[str]]:
    """Return the columns that the role may read, by table."""
    columns_by_table = {}
    for model in gatebook_models():
        table = model._meta.db_table
        withheld = WITHHELD_COLUMNS.get(table, {})
        columns = [
            str(field.column) for field in model._meta.local_fields if field.column not in withheld
        ]
        columns_by_table[table] = columns
    return columns_by_table | {table: list(columns) for table, columns in DJANGO_COLUMNS.items()}


def gatebook_models() -> list[type[models.Model]]:
    """Return all models of Gatebook's apps."""
    return [model for model in apps.get_models() if model.__module__.partition(".")[0] in APPS]


def grant_statements(quote: Any, role: str) -> list[str]:
    """Return the SQL that gives `role` exactly these rights. Idempotent."""
    name = quote(role)
    grants = [
        f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name}",
        f"GRANT USAGE ON SCHEMA public TO {name}",
    ]
    for table, columns in sorted(readable_columns().items()):
        # Each column is granted by name, so that later columns are not readable until somebody
        # lists them.
        grants.append(
            f"GRANT SELECT ({', '.join(quote(column) for column in columns)}) ON {quote(table)} TO "
            f"{name}"
        )
    return grants
