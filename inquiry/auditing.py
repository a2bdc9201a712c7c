"""The columns that the audit role of the database may read: all but those listed here.

The audit role must be able to answer who did what, when, with whose permission, and the current
state. It cannot read arguments, results, messages, free text, private notes or anything derived
from a secret. Of Django's tables it reads only the user names. A test checks that every column that
can hold long text is listed as withheld or as read, with a reason.
"""

from typing import Any, Final

from django.apps import apps
from django.db import models

ROOMS: Final = ("journal", "sessions", "ledger", "approvals", "inquiry", "ingest")

WITHHELD: Final[dict[str, dict[str, str]]] = {
    "journal_body": {
        "text": "the item as sent",
        "salt": "allows guessing the text",
    },
    "agent_sessions_session": {
        "said": "text from the agent's reports",
        "waiting_on": "the agent's text",
        "cursor": "the agent's text",
        "labels": "the agent's text",
        "merge_intent": "the agent's text",
    },
    "agent_sessions_task": {"said": "text from the agent's reports"},
    "agent_sessions_item": {"key": "often names a person"},
    "agent_sessions_agent": {"charter": "instructions written by people"},
    "agent_sessions_agenttoken": {"digest": "derived from a secret"},
    "agent_sessions_artifact": {"uri": "addresses may contain secrets"},
    "agent_sessions_checkpoint": {
        "cache_keys": "the agent's state",
        "cursor": "the agent's text",
        "pins": "the agent's state",
    },
    "agent_sessions_handoff": {"waits_on": "the agent's text"},
    "approvals_noticechannel": {"target": "addresses of people and webhooks"},
    "inquiry_stucktransition": {"says": "quotes calls and their results"},
    "inquiry_effectwords": {"words": "the words of arguments and results"},
    "inquiry_importedbundle": {"told": "complete texts of another journal"},
    "inquiry_importedgate": {"told": "complete texts of another journal"},
    "inquiry_savedquery": {"name": "may be private", "text": "may be private"},
    "inquiry_alert": {
        "text": "may be private",
        "known": "matches of a query that may be private",
        "stopped_because": "may quote it",
    },
    "inquiry_export": {"text": "a person's query; recorded in a body"},
    "ingest_answer": {"body": "the response to an agent"},
}
# Long texts that an audit needs, or that contain no personal data.
READ: Final[dict[str, dict[str, str]]] = {
    "journal_entry": {
        "facts": "a closed vocabulary: states, ids, digests, pseudonyms",
        "body_commit": "proves a body and cannot be reversed",
    },
    "agent_sessions_repository": {
        "production_refs": "why a ref counts as production",
        "protected_refs": "why a ref counts as protected",
    },
    "approvals_policyset": {
        "text": "the rules that were in force",
        "rules": "the rules that were in force",
    },
    "approvals_gate": {"requirement": "who had to approve"},
}
OTHERS: Final = {"auth_user": ("id", "username")}


def tables() -> dict[str, list[str]]:
    """Return the columns that the role may read, by table."""
    columns_by_table = {}
    for model in ours():
        table = model._meta.db_table
        withheld = WITHHELD.get(table, {})
        columns = [
            str(field.column) for field in model._meta.local_fields if field.column not in withheld
        ]
        columns_by_table[table] = columns
    return columns_by_table | {table: list(columns) for table, columns in OTHERS.items()}


def ours() -> list[type[models.Model]]:
    """Return all models of Gatebook's apps."""
    return [model for model in apps.get_models() if model.__module__.partition(".")[0] in ROOMS]


def statements(quote: Any, role: str) -> list[str]:
    """Return the SQL that gives `role` exactly these rights. Idempotent."""
    name = quote(role)
    grants = [
        f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name}",
        f"GRANT USAGE ON SCHEMA public TO {name}",
    ]
    for table, columns in sorted(tables().items()):
        # Each column is granted by name, so that later columns are not readable until somebody
        # lists them.
        grants.append(
            f"GRANT SELECT ({', '.join(quote(column) for column in columns)}) ON {quote(table)} TO "
            f"{name}"
        )
    return grants
