"""What a role of the database that only audits may read: every column of every table of ours but those named here.

Whoever audits must be able to answer who did what, when, with whose leave and how it stands now; not what was said. So
the role reads no arguments, results, messages or free text, nothing that stands for a secret, and no private note. Of
tables that are not ours it reads the names that people sign in with. A test makes sure that every column which can hold
a whole text is either withheld here or named among those that are read, each with its reason.
"""

from typing import Any, Final

from django.apps import apps
from django.db import models

ROOMS: Final = ("journal", "sessions", "ledger", "approvals", "inquiry", "ingest")

WITHHELD: Final[dict[str, dict[str, str]]] = {
    "journal_body": {"text": "the item as it was sent", "salt": "with it, the text could be guessed"},
    "agent_sessions_session": {
        "said": "what facts said of it, word for word",
        "waiting_on": "the agent's words",
        "cursor": "the agent's words",
        "labels": "the agent's words",
        "merge_intent": "the agent's words",
    },
    "agent_sessions_task": {"said": "what facts said of it, word for word"},
    "agent_sessions_item": {"key": "what a task works through: often a person"},
    "agent_sessions_agent": {"charter": "people's words to it"},
    "agent_sessions_agenttoken": {"digest": "stands for a secret"},
    "agent_sessions_artifact": {"uri": "addresses may carry secrets"},
    "agent_sessions_checkpoint": {
        "cache_keys": "the agent's state",
        "cursor": "the agent's words",
        "pins": "the agent's state",
    },
    "agent_sessions_handoff": {"waits_on": "the agent's words"},
    "approvals_noticechannel": {"target": "addresses of people and hooks"},
    "inquiry_stucktransition": {"says": "quotes calls and their results"},
    "inquiry_effectwords": {"words": "the words of arguments and results"},
    "inquiry_importedbundle": {"told": "whole texts of another book"},
    "inquiry_importedgate": {"told": "whole texts of another book"},
    "inquiry_savedquery": {"name": "may be private", "text": "may be private"},
    "inquiry_alert": {
        "text": "may be private",
        "known": "what matches a query that may be private",
        "stopped_because": "may quote it",
    },
    "inquiry_export": {"text": "what somebody asked; on record in a body"},
    "ingest_answer": {"body": "what an agent was answered"},
}
# Whole texts that an audit needs, or that say nothing of anybody.
READ: Final[dict[str, dict[str, str]]] = {
    "journal_entry": {
        "facts": "a closed vocabulary: states, ids, digests, pseudonyms",
        "body_commit": "proves a body, and cannot be turned back into it",
    },
    "agent_sessions_repository": {
        "production_refs": "why a ref counts as production",
        "protected_refs": "why a ref counts as protected",
    },
    "approvals_policyset": {"text": "the rules that were in force", "rules": "the rules that were in force"},
    "approvals_gate": {"requirement": "who had to say yes"},
}
OTHERS: Final = {"auth_user": ("id", "username")}


def tables() -> dict[str, list[str]]:
    """The columns that the role may read, by table."""
    found = {}
    for model in ours():
        table = model._meta.db_table
        withheld = WITHHELD.get(table, {})
        columns = [str(one.column) for one in model._meta.local_fields if one.column not in withheld]
        found[table] = columns
    return found | {table: list(columns) for table, columns in OTHERS.items()}


def ours() -> list[type[models.Model]]:
    """Every model of the rooms."""
    return [model for model in apps.get_models() if model.__module__.partition(".")[0] in ROOMS]


def statements(quote: Any, role: str) -> list[str]:
    """What the owner of the tables says to PostgreSQL so that `role` may read this and nothing else. Idempotent."""
    name = quote(role)
    said = [
        f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name}",
        f"GRANT USAGE ON SCHEMA public TO {name}",
    ]
    for table, columns in sorted(tables().items()):
        # A column at a time: one that a later version adds is not read before somebody has thought about it.
        said.append(f"GRANT SELECT ({', '.join(quote(one) for one in columns)}) ON {quote(table)} TO {name}")
    return said
