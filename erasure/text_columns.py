"""Every column that can hold text, and what an erasure does with it.

A test walks the models and fails for a column without a row in this table. So a new column cannot
be forgotten: decide what its text is, and add it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.apps import apps
from django.db import models


class Treatment(StrEnum):
    """What an erasure does with a column that contains the subject."""

    MARK = "mark"  # becomes `[erased]`
    BLANK = "blank"  # becomes empty: programs continue from its value
    NAME = "name"  # becomes `[erased <id of the row>]`: unique, or never empty
    JSON = "json"  # matching texts within become `[erased]`
    JSON_TEXT = "json_text"  # the same, in a text column that holds JSON
    ROW = "row"  # the whole row goes
    BODY = "body"  # body and salt go, by journal/erasures.py
    WORDS = "words"  # the row goes; its words are in the form of the search index
    PERSON = "person"  # goes with the person (erasure/person_erasure.py)
    LOGIN = "login"  # an encoded login session: the row goes
    KEPT = "kept"  # stays, and is counted as exempt
    CLOSED = "closed"  # holds no free text: an id, a digest, a value of a closed list


ERASABLE: Final = frozenset(Treatment) - {Treatment.KEPT, Treatment.CLOSED}
MARK, BLANK, NAME, JSON = Treatment.MARK, Treatment.BLANK, Treatment.NAME, Treatment.JSON
JSON_TEXT, ROW, KEPT, CLOSED = (
    Treatment.JSON_TEXT,
    Treatment.ROW,
    Treatment.KEPT,
    Treatment.CLOSED,
)


@dataclass(frozen=True, slots=True)
class TextTable:
    """The text columns of one table, by class of the preview."""

    label: str  # of the model
    text_class: str
    columns: dict[str, Treatment]
    project: str = ""  # path to the id of its project; empty: belongs to none
    session: str = ""  # path to the id of its session
    # Column that names the person who wrote the row, and what it holds: user, or pseudonym.
    author: str = ""
    author_is_user: bool = False
    sign_in_name: str = ""  # column with the user name, as accounts/sign_ins.py counts it

    @property
    def model(self) -> type[models.Model]:
        """The model of the table."""
        return apps.get_model(self.label)

    @property
    def erasable(self) -> tuple[str, ...]:
        """The columns that an erasure can change."""
        return tuple(name for name, what in self.columns.items() if what in ERASABLE)

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that stay although they may hold text."""
        return tuple(name for name, what in self.columns.items() if what is KEPT)


# Class of the preview -> its name on pages, and what is kept of it and why.
TEXT_CLASSES: Final = {
    "bodies": "Bodies of journal entries",
    "artifacts": "Bytes of artifacts",
    "search": "Words of the search index",
    "answers": "Stored answers of the API",
    "notifications": "Notifications and their addresses",
    "exports": "Exports and their files",
    "saved": "Saved queries and alerts",
    "messages": "Names of message files",
    "state": "Working state",
    "titles": "Titles, names and references",
    "hosts": "Events of code hosts",
    "archives": "Imported bundles",
    "sign_ins": "Sign-ins",
    "people": "Accounts of people",
    "settings": "Descriptions and charters",
}
_PROJECT: Final = "project_id"
_SESSION: Final = "session_id"


def _columns(closed: str = "", kept: str = "", **others: Treatment) -> dict[str, Treatment]:
    """Return the treatment of each column; `closed` and `kept` list names."""
    return {
        **dict.fromkeys(closed.split(), CLOSED),
        **dict.fromkeys(kept.split(), KEPT),
        **others,
    }


# In the order in which an erasure walks them: bodies last, because what removes people and their
# addresses records entries of its own.
TEXT_TABLES: Final = (
    # --- sign-ins and people
    TextTable(
        "sessions.Session", "sign_ins", _columns("session_key", session_data=Treatment.LOGIN)
    ),
    TextTable(
        "axes.AccessFailureLog",
        "sign_ins",
        _columns(user_agent=ROW, ip_address=ROW, username=ROW, http_accept=ROW, path_info=ROW),
        sign_in_name="username",
    ),
    TextTable(
        "axes.AccessAttempt",
        "sign_ins",
        _columns(
            user_agent=ROW,
            ip_address=ROW,
            username=ROW,
            http_accept=ROW,
            path_info=ROW,
            get_data=ROW,
            post_data=ROW,
        ),
        sign_in_name="username",
    ),
    TextTable(
        "axes.AccessLog",
        "sign_ins",
        _columns(
            "session_hash",
            user_agent=ROW,
            ip_address=ROW,
            username=ROW,
            http_accept=ROW,
            path_info=ROW,
        ),
        sign_in_name="username",
    ),
    TextTable(
        "auth.User",
        "people",
        _columns(
            "password",
            username=Treatment.PERSON,
            first_name=Treatment.PERSON,
            last_name=Treatment.PERSON,
            email=Treatment.PERSON,
        ),
    ),
    TextTable("auth.Permission", "people", _columns("name codename")),
    TextTable("auth.Group", "people", _columns("name")),
    TextTable("contenttypes.ContentType", "people", _columns("app_label model")),
    TextTable("accounts.Person", "people", _columns("pseudonym theme clock password_given_by")),
    TextTable("accounts.Membership", "people", _columns("role"), _PROJECT),
    TextTable("accounts.Invitation", "people", _columns("role invited_by"), _PROJECT),
    # --- settings
    TextTable("accounts.Project", "settings", _columns(kept="name"), "id"),
    TextTable("accounts.Agent", "settings", _columns(kept="name team", charter=MARK), _PROJECT),
    TextTable("accounts.AgentToken", "settings", _columns("public_id digest scope"), _PROJECT),
    TextTable(
        "accounts.Repository",
        "settings",
        _columns(kept="name production_refs protected_refs"),
        _PROJECT,
    ),
    TextTable("accounts.Team", "settings", _columns(kept="name"), _PROJECT),
    TextTable("ledger.Breaker", "settings", _columns(kept="tool"), _PROJECT),
    TextTable("ledger.Stop", "settings", _columns("scope", "subject"), _PROJECT),
    TextTable(
        "ledger.Tool",
        "settings",
        _columns(
            "tool_class reversibility undo", "name telling fields raises shell", description=MARK
        ),
        _PROJECT,
    ),
    TextTable(
        "approvals.PolicySet",
        "settings",
        _columns("sha256 loaded_by", "name text rules"),
        _PROJECT,
    ),
    TextTable(
        "retention.RetentionSet",
        "settings",
        _columns("sha256 loaded_by activated_by dry_run progress", "name text rules"),
        _PROJECT,
    ),
    TextTable("approvals.Activation", "settings", _columns("mode actor"), _PROJECT),
    TextTable(
        "approvals.Exemption",
        "settings",
        _columns(kept="tool rule agent repository ref environment"),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "approvals.ExemptionVote", "settings", _columns("actor step_up"), "exemption__project_id"
    ),
    TextTable("monitoring.StuckLimit", "settings", _columns("name"), _PROJECT),
    TextTable("monitoring.JobHeartbeat", "settings", _columns("name error")),
    TextTable("journal.Fingerprint", "settings", _columns("name value")),
    # --- search: before the effects, with which words of the index go too, uncounted
    TextTable(
        "ledger.UsedName",
        "search",
        _columns("kind", name=ROW, skeleton=ROW, head=ROW, middle=ROW, tail=ROW),
        _PROJECT,
    ),
    TextTable(
        "investigation.FieldValue",
        "search",
        _columns("", "field", value=ROW),
        _PROJECT,
        "effect__session_id",
    ),
    TextTable("investigation.FieldCoverage", "search", _columns(kept="tool fields"), _PROJECT),
    TextTable("investigation.RepeatedOccurrence", "search", _columns("sort"), _PROJECT),
    TextTable("investigation.EffectText", "search", _columns(words=Treatment.WORDS), _PROJECT),
    # --- titles, names and references
    TextTable(
        "agent_sessions.Session",
        "titles",
        _columns(
            "mode status",
            "started_mark status_mark",
            key=NAME,
            branch=MARK,
            merge_intent=MARK,
            title=MARK,
            waiting_on=MARK,
            cursor=BLANK,
            labels=JSON,
            field_history=JSON,
        ),
        _PROJECT,
        "id",
    ),
    TextTable(
        "agent_sessions.Task",
        "titles",
        _columns(
            "state",
            "created_mark done_mark",
            key=NAME,
            title=MARK,
            worker=MARK,
            branch_label=MARK,
            field_history=JSON,
        ),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "agent_sessions.Item",
        "titles",
        _columns("state", "mark", key=NAME),
        _PROJECT,
        "task__session_id",
    ),
    TextTable(
        "agent_sessions.Artifact",
        "titles",
        _columns("sha256 retention", type=MARK, name=MARK, uri=MARK, media_type=MARK),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "ledger.Effect",
        "titles",
        _columns(
            "claimed_class intent_digest ref_class lane policy_outcome policy_tool_class"
            " policy_parts_digest permission permission_basis permission_ref saved_permission"
            " state outcome failure_reason resolution confirmed_by confirmed_mark",
            "tool policy_rule planned_mark superseded_mark resolved_mark",
            effect_key=NAME,
            call_id=BLANK,
            turn=BLANK,
            ref=MARK,
            moved_refs=MARK,
            environment=MARK,
            resource=MARK,
            external_reference=MARK,
        ),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "ledger.Attempt",
        "titles",
        _columns(
            "remote_key verdict_row lane permission outcome failure_reason",
            "dispatch_key dispatched_mark acknowledged_mark failed_mark",
            process=MARK,
            external_reference=MARK,
        ),
        _PROJECT,
        "effect__session_id",
    ),
    TextTable(
        "agent_sessions.Lease",
        "titles",
        _columns("kind", "process", subject=NAME, progress_token=BLANK),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "approvals.Gate",
        "titles",
        _columns(
            "digest intent_digest preconditions_digest requirement_hash risk reversibility step_up"
            " status reason",
            "requirement rule tool repository_name",
        ),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "approvals.Vote",
        "titles",
        _columns("actor answer card_sha256 shown_digest step_up", "team"),
        _PROJECT,
        "gate__session_id",
    ),
    TextTable(
        "approvals.ReviewSettings", "notifications", {"digest_address": Treatment.ROW}, _PROJECT
    ),
    TextTable("approvals.Addressee", "titles", _columns("relation"), _PROJECT, "gate__session_id"),
    TextTable("monitoring.EffectDay", "titles", _columns(kept="tool"), _PROJECT),
    TextTable("monitoring.StuckEpisode", "titles", _columns("rule", says=JSON), _PROJECT, _SESSION),
    # --- working state
    TextTable(
        "agent_sessions.Checkpoint",
        "state",
        _columns("", "mark", cache_keys=JSON, cursor=BLANK, pins=JSON),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "agent_sessions.Decision",
        "state",
        _columns("status", "recorded_mark concluded_mark", key=NAME),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "agent_sessions.Handoff",
        "state",
        _columns("", "written_mark accepted_mark", key=NAME, waits_on=JSON),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "agent_sessions.ObservedFact",
        "state",
        _columns("digest", "mark", name=NAME, source=NAME),
        _PROJECT,
        _SESSION,
    ),
    TextTable("agent_sessions.Capacity", "state", _columns("pace_reason"), _PROJECT, _SESSION),
    # --- messages
    TextTable(
        "agent_sessions.MessageFile",
        "messages",
        _columns(file=NAME),
        "message__project_id",
        "message__session_id",
    ),
    # --- notifications
    TextTable(
        "notifications.NotificationChannel",
        "notifications",
        _columns("kind body_form minimum_risk", target=NAME),
        _PROJECT,
        author="person_id",
        author_is_user=True,
    ),
    TextTable(
        "notifications.Notification",
        "notifications",
        _columns("topic key state", last_error=MARK),
        _PROJECT,
    ),
    TextTable(
        "journal.Outbox",
        "notifications",
        _columns("topic deduplication_key", last_error=MARK),
        "project",
        "entry__session",
    ),
    # --- saved queries and exports
    TextTable(
        "investigation.Alert",
        "saved",
        _columns("matched_positions", text=ROW, stopped_because=MARK),
        _PROJECT,
        author="query__owner_id",
        author_is_user=True,
    ),
    TextTable(
        "investigation.SavedQuery",
        "saved",
        _columns(name=ROW, text=ROW),
        _PROJECT,
        author="owner_id",
        author_is_user=True,
    ),
    TextTable(
        "investigation.Export",
        "exports",
        _columns("format columns state sha256", text=MARK, error=MARK),
        _PROJECT,
        author="asked_by_id",
        author_is_user=True,
    ),
    # --- code hosts
    TextTable("hooks.CodeHostSource", "hosts", _columns("host created_by", "name"), _PROJECT),
    TextTable(
        "hooks.CodeHostDelivery",
        "hosts",
        _columns("body_digest", "delivery_key event action"),
        _PROJECT,
    ),
    TextTable(
        "hooks.CodeHostEvent",
        "hosts",
        _columns(
            "kind sha status",
            "",
            action=MARK,
            repository=MARK,
            ref=MARK,
            sender=MARK,
            facts=JSON_TEXT,
        ),
        _PROJECT,
    ),
    TextTable(
        "hooks.EventMatch",
        "hosts",
        _columns("rule status decided_by", compared=JSON_TEXT, reason=MARK),
        _PROJECT,
        "effect__session_id",
        author="decided_by",
    ),
    TextTable(
        "hooks.AgentIdentity", "hosts", _columns("host kind created_by", value=ROW), _PROJECT
    ),
    # --- archives
    TextTable(
        "investigation.ImportedBundle",
        "archives",
        _columns("sha256", document=JSON),
        _PROJECT,
        _SESSION,
    ),
    TextTable(
        "investigation.ImportedGate",
        "archives",
        _columns(document=JSON),
        _PROJECT,
        "effect__session_id",
    ),
    # --- stored answers
    TextTable(
        "api.StoredResponse", "answers", _columns("", "source", key=ROW, body=ROW), "project"
    ),
    TextTable("investigation.Incident", "titles", _columns("state"), _PROJECT),
    TextTable("investigation.IncidentMember", "titles", _columns("kind"), _PROJECT),
    # --- the journal
    TextTable(
        "journal.Entry",
        "bodies",
        _columns("actor lane body_commit txid", "source claimed_source event_id kind facts"),
        "project",
        "session",
    ),
    TextTable(
        "journal.Body",
        "bodies",
        _columns("salt", text=Treatment.BODY),
        "entry__project",
        "entry__session",
        author="entry__actor",
    ),
    TextTable("journal.Erasure", "bodies", _columns("actor", "reason"), "project"),
    # --- proofs: hashes, keys and signatures
    TextTable("proofs.SealedEntry", "bodies", {}),
    TextTable("proofs.Tile", "bodies", _columns("hashes")),
    TextTable("proofs.TreeHead", "bodies", _columns("root key_name key_id note")),
    TextTable("proofs.SigningKey", "bodies", _columns("name key_id public_key endorsement")),
    TextTable("proofs.Anchor", "bodies", _columns("name kind receipt error")),
    TextTable("proofs.SealProgress", "bodies", _columns("writers")),
    # --- erasure itself; its words go when the request has run
    TextTable(
        "erasure.ErasureRequest",
        "people",
        _columns(
            "subject_kind words word_digests state progress counts erased_counts error reason"
        ),
    ),
    TextTable("erasure.LegalHold", "people", _columns("kind words reason")),
)

# Why a column of a class stays, for the preview.
KEPT_REASONS: Final = {
    "bodies": "Sources, event ids, kinds and facts of sealed entries. Clients chose them, and they"
    " are part of the proof.",
    "titles": "Names of tools, rules and repositories, people whom a rule requires, and order keys"
    " made of event ids.",
    "settings": "Names that administrators chose, also of people whom a rule requires. Rename or"
    " remove them on their pages; earlier versions of rules stay.",
    "state": "Order keys, made of event ids.",
    "hosts": "Ids of deliveries, which the code host chose.",
    "answers": "The name of the agent that sent the command.",
    "search": "Names of tools and of search fields.",
}
