"""Every table is checked against the journal, guarded with its entry, or has a written reason."""

from typing import Final

from django.apps import apps

from db import triggers
from rebuild.registry import list_row_checks

JOURNAL: Final = "the journal itself or its seal: manage.py verify checks it"
INDEX: Final = "an index or a count, made again from rows that are checked"
DELIVERY: Final = "whether a message arrived is known to its receiver only"
HEARTBEAT: Final = "follows from heartbeats, which are not in the journal"
OWN_VIEW: Final = "a person's own view, which decides nothing about agents"
ACCOUNT: Final = "groups and permissions of Django, which give no role in a project"
SIGN_IN: Final = "sign-ins in progress; each has an entry of its own kind"
ANCHOR: Final = "compared with what the anchors hold: manage.py anchor_heads --check"

# Table -> why neither a check nor a guard with an entry covers it.
REASONS: Final = {
    "agent_sessions_heartbeatminute": HEARTBEAT,
    "agent_sessions_messagefile": DELIVERY,
    "api_storedresponse": "the answer to a command that is sent again; the entry decides",
    "auth_group": ACCOUNT,
    "auth_group_permissions": ACCOUNT,
    "auth_permission": ACCOUNT,
    "auth_user_groups": ACCOUNT,
    "auth_user_user_permissions": ACCOUNT,
    "axes_accessattempt": SIGN_IN,
    "axes_accessattemptexpiration": SIGN_IN,
    "axes_accessfailurelog": SIGN_IN,
    "axes_accesslog": SIGN_IN,
    "django_content_type": "made by migrations",
    "django_session": SIGN_IN,
    "investigation_alert": OWN_VIEW,
    "investigation_alertchannel": OWN_VIEW,
    "investigation_export": OWN_VIEW,
    "investigation_fieldcoverage": INDEX,
    "investigation_firstoccurrence": INDEX,
    "investigation_importedbundle": "compared with the digest of its import's entry",
    "investigation_importedgate": "compared with the digest of its import's entry",
    "investigation_incident": OWN_VIEW,
    "investigation_incidententry": OWN_VIEW,
    "investigation_incidentmember": OWN_VIEW,
    "investigation_repeatedoccurrence": INDEX,
    "investigation_savedquery": OWN_VIEW,
    "journal_entry": JOURNAL,
    "journal_fingerprint": "compared with the keys at every start",
    "ledger_samecall": INDEX,
    "ledger_usedname": INDEX,
    "ledger_usednameplan": INDEX,
    "ledger_usednameprogress": INDEX,
    "monitoring_effectday": INDEX,
    "monitoring_effecthour": INDEX,
    "monitoring_jobheartbeat": "the heartbeats of Gatebook's own jobs",
    "monitoring_stuckepisode": HEARTBEAT,
    "notifications_notification": DELIVERY,
    "proofs_anchor": ANCHOR,
    "proofs_sealedentry": JOURNAL,
    "proofs_sealprogress": "where the seal goes on; the verifier counts what is not sealed",
    "proofs_signingkey": JOURNAL,
    "proofs_tile": JOURNAL,
    "proofs_treehead": JOURNAL,
}


def list_guarded_tables() -> set[str]:
    """Return the tables that have a trigger which reads the journal's entries."""
    guarded = set()
    for trigger_set in triggers._trigger_sets:
        for _name, (table, statement) in trigger_set.sqlite.items():
            if "journal_entry entry" in statement:
                guarded.add(table)
    return guarded


def test_every_table_is_checked_or_guarded_or_has_its_reason() -> None:
    tables = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    checked = {check.table for check in list_row_checks()}
    guarded = list_guarded_tables()
    covered = checked | guarded
    assert checked <= tables
    assert tables - covered - REASONS.keys() == set(), "a table without a reason"
    assert REASONS.keys() - (tables - covered) == set(), "a reason without its table"
