"""Write statistics for SQLite's query planner after every migration.

Without statistics, SQLite considers every index of a project equally selective and scans the
complete project for three failed effects. The figures (rows, then rows per value of the first one,
two … columns; see sqlite_stat1 in the SQLite documentation) are those of a project with a million
effects and 100,000 gates. Only their order of magnitude matters, and they suit small journals as
well. PostgreSQL maintains its own.
"""

from typing import Any, Final

from django.db import connections

EFFECTS: Final = {
    "effect_by_opening": "1000000 1000000 1",
    "effect_by_session": "1000000 100 1",
    "effect_by_tool": "1000000 1000000 50000 1",
    "effect_by_agent": "1000000 50000 2500 1",
    "effect_by_state": "100000 100000 20000 1 1",
    "effect_error_by_agent": "30000 1500 1 1 1",
    "effect_failed_by_tool": "20000 20000 1000 1 1 1",
    "effect_open_intent": "30000 20 1",
    "effect_unknown_intent": "20000 20000 1",
    "effect_by_call": "800000 80 1",
    "effect_by_confirmation": "20000 20000 10000 1",
    "effect_by_reference": "300000 300000 2",
    "effect_by_repository": "500000 500000 25000 1",
    "effect_by_ref_class": "100000 100000 50000 1",
    "effect_by_bad_outcome": "50000 50000 2500 1 1 1",
    "effect_by_compensated": "1000 1",
    "effect_by_resource": "300000 300000 500 1",
    "effect_violations": "1000 1000 1",
    "effect_needing_permission": "50000 50000 1",
    "effect_asked_about": "50000 50000 2",
    "effect_tried_again": "20000 20000 1 1 1 1 1",
    "effect_without_permission": "1000 1000 1",
    # Created by SQLite for the primary key and for (session, effect_key).
    "sqlite_autoindex_ledger_effect_1": "1000000 1",
    "sqlite_autoindex_ledger_effect_2": "1000000 100 1",
}

GATES: Final = {
    "gate_by_opening": "100000 100000 1",
    "gate_open": "5000 5000 1",
    "gate_pending_by_deadline": "5000 1",
    "gate_waiting": "5000 5000 1250 1 1",
    "gate_approved_by_end": "100 1",
    "gate_denied_session": "100 2 1",
    "gate_by_target": "100000 100000 20000 1000 1",
    "gate_by_agent": "100000 100000 20000 5000 1",
    "gate_by_session": "100000 100 1",
    "gate_by_decision": "90000 90000 2",
    "gate_unanswered": "8000 8000 4000 2",
    "effect_has_at_most_one_open_gate": "5000 1",
    "sqlite_autoindex_approvals_gate_1": "100000 1",
}
ENTRIES: Final = {
    "entry_by_session": "5000000 500 1",
    "entry_by_effect": "4000000 4 1",
    "entry_by_received_us": "5000000 2",
    "entry_of_control": "2000 4 1",
    "entry_of_description": "20000 2 1",
    "entry_of_acquisition": "20000 4 1",
    "entry_by_kind": "500000 500000 10000 1",
    "entry_of_claim": "2000 4 1",
    "entry_by_person": "200000 200000 2000 1",
    # Created by SQLite for (project, source, event_id).
    "sqlite_autoindex_journal_entry_1": "5000000 5000000 500000 1",
}
VOTES: Final = {
    "vote_by_time": "100000 100000 1",
    "vote_on_own_request": "1000 1000 1",
    "approvals_vote_user_id_33a98cf1": "100000 2000",
    "sqlite_autoindex_approvals_vote_1": "100000 1",
    "sqlite_autoindex_approvals_vote_2": "100000 2 1",  # (gate, user)
}
SESSIONS: Final = {
    "session_by_opening": "20000 20000 1",
    "session_by_start": "100 1",
    "agent_sessions_session_agent_id_1bc73aad": "20000 2000",
    "agent_sessions_session_owner_id_5a08c69b": "20000 2000",
    "agent_sessions_session_on_behalf_of_id_fcdf630d": "20000 500",
    "agent_sessions_session_repository_id_88474a72": "20000 1000",
    "agent_sessions_session_parent_id_5f9b06e5": "20000 4",
    "agent_sessions_session_branched_from_id_2284b11d": "20000 2",
    "agent_sessions_session_merged_into_id_0a86582f": "20000 2",
    "sqlite_autoindex_agent_sessions_session_1": "20000 1",
    "sqlite_autoindex_agent_sessions_session_2": "20000 20000 1",  # (project, key)
}
TASKS: Final = {
    "task_by_opening": "100000 100000 1",
    "task_by_priority": "5000 5000 500",
    "agent_sessions_task_parent_id_ae15ab2e": "100000 4",
    "sqlite_autoindex_agent_sessions_task_1": "100000 1",
    "sqlite_autoindex_agent_sessions_task_2": "100000 5 1",  # (session, key)
}
ARTIFACTS: Final = {
    "artifact_by_opening": "200000 200000 1",
    "artifact_by_session": "200000 20 1",
    "artifact_by_effect": "200000 2",
    "artifact_by_hash": "200000 200000 2",
    "sqlite_autoindex_agent_sessions_artifact_1": "200000 1",
}
NAMES: Final = {
    "used_name_by_skeleton": "1000000 1000000 1",
    "used_name_by_first_use": "1000000 1000000 200000 1",
    "used_name_by_head": "500000 500000 100000 5000 5",
    "used_name_by_middle": "500000 500000 100000 5000 5",
    "used_name_by_tail": "500000 500000 100000 5000 5",
    "sqlite_autoindex_ledger_usedname_1": "1000000 1000000 200000 1",
}
PLANS_OF_NAMES: Final = {
    "used_name_plan_by_position": "2000000 2",
    "sqlite_autoindex_ledger_usednameplan_1": "2000000 2 1",  # (name, position)
}
TABLES: Final = {
    "ledger_effect": EFFECTS,
    "ledger_usedname": NAMES,
    "ledger_usednameplan": PLANS_OF_NAMES,
    "approvals_gate": GATES,
    "approvals_vote": VOTES,
    "journal_entry": ENTRIES,
    "agent_sessions_session": SESSIONS,
    "agent_sessions_task": TASKS,
    "agent_sessions_artifact": ARTIFACTS,
}


def write_planner_statistics(using: str = "default", **_signal: Any) -> None:
    """Write the figures if the database is SQLite; connections opened later use them."""
    connection = connections[using]
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT tbl_name, name FROM sqlite_master WHERE type = 'index'")
        present = set(cursor.fetchall())
        rows = [
            (table, index, figures)
            for table, figures_by_index in TABLES.items()
            for index, figures in figures_by_index.items()
            if (table, index) in present
        ]
        if not rows:
            return
        cursor.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'")
        # Only ANALYZE can create the table; a few rows are enough.
        if cursor.fetchone() is None:
            cursor.execute("PRAGMA analysis_limit = 100")
            cursor.execute("ANALYZE ledger_effect")
        for table in TABLES:
            cursor.execute("DELETE FROM sqlite_stat1 WHERE tbl = %s", [table])
        cursor.executemany("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (%s, %s, %s)", rows)
        cursor.execute("ANALYZE sqlite_schema")  # Makes this connection use the figures, too.
