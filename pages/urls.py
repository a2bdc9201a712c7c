"""The reading pages."""

from django.urls import path

from pages.agents import settings_views
from pages.agents import views as agents_views
from pages.artifacts import views as artifacts_views
from pages.bundles import views as bundles_views
from pages.compare import views as compare_views
from pages.effects import chain_views, resolve_views
from pages.effects import views as effects_views
from pages.first_steps import views as first_steps_views
from pages.help import views as help_views
from pages.history import views as history_views
from pages.incidents import views as incidents_views
from pages.journal import erase_views
from pages.journal import views as journal_views
from pages.messages import views
from pages.navigation import views as navigation_views
from pages.overview import views as overview_views
from pages.people import views as people_views
from pages.sample import views as sample_views
from pages.search import alerts_views, case_views, exports_views, questions_views, saved_views
from pages.search import views as search_views
from pages.sessions import resume_views
from pages.sessions import views as sessions_views
from pages.stuck import views as stuck_views
from pages.tasks import views as tasks_views
from pages.timeline import views as timeline_views
from pages.tools import views as tools_views
from pages.verdicts import views as verdicts_views
from pages.violations import views as violations_views

urlpatterns = [
    path("", overview_views.home_page, name="home"),
    path(
        "violations/acknowledge/",
        violations_views.acknowledge_violations_page,
        name="acknowledge_violations",
    ),
    path("first-steps/", first_steps_views.first_steps_page, name="first_steps"),
    path("first-steps/token/", first_steps_views.issue_first_token, name="first_token"),
    path("first-steps/rule/", first_steps_views.activate_first_rule, name="first_rule"),
    path("first-steps/hide/", first_steps_views.hide_first_steps, name="hide_first_steps"),
    path("sample/load/", sample_views.load_sample_page, name="load_sample"),
    path("sample/remove/", sample_views.remove_sample_page, name="remove_sample"),
    path(
        "first-steps/client/<str:file_name>", first_steps_views.download_client, name="client_wheel"
    ),
    path("sessions/", sessions_views.sessions_page, name="sessions"),
    path("sessions/<uuid:session>/", sessions_views.session_page_view, name="session"),
    path(
        "sessions/<uuid:session>/timeline/",
        timeline_views.session_timeline,
        name="session_timeline",
    ),
    path("sessions/<uuid:session>/resume/", resume_views.session_resume, name="session_resume"),
    path("sessions/<uuid:session>/tasks/", tasks_views.session_tasks, name="session_tasks"),
    path(
        "sessions/<uuid:session>/decisions/",
        sessions_views.session_decisions,
        name="session_decisions",
    ),
    path(
        "sessions/<uuid:session>/handoffs/",
        sessions_views.session_handoffs,
        name="session_handoffs",
    ),
    path("sessions/<uuid:session>/state/", sessions_views.session_state, name="session_state"),
    path(
        "sessions/<uuid:session>/artifacts/",
        artifacts_views.session_artifacts,
        name="session_artifacts",
    ),
    path("bundles/<uuid:session>/export/", bundles_views.export_bundle, name="export_bundle"),
    path("bundles/<uuid:session>/", bundles_views.session_bundle, name="session_bundle"),
    path("sessions/<uuid:session>/stuck/", stuck_views.session_why, name="session_why"),
    path("sessions/<uuid:session>/compare/", compare_views.session_compare, name="session_compare"),
    path(
        "sessions/<uuid:session>/compare/<uuid:other>/",
        compare_views.session_diff,
        name="session_diff",
    ),
    path(
        "sessions/<uuid:session>/people/", people_views.session_people_page, name="session_people"
    ),
    path("tasks/<uuid:task>/", tasks_views.task_page, name="task"),
    path("effects/<uuid:effect>/", effects_views.effect_page_view, name="effect"),
    path("effects/<uuid:effect>/chain/", chain_views.effect_chain, name="effect_chain"),
    path("effects/<uuid:effect>/resolve/", resolve_views.resolve_effect_page, name="resolve"),
    path(
        "effects/<uuid:effect>/resolve/confirm/",
        resolve_views.confirm_resolution,
        name="resolve_confirm",
    ),
    path(
        "effects/<uuid:effect>/facts/<int:position>/raw/",
        effects_views.raw_entry_body,
        name="raw_fact",
    ),
    path("bundles/gates/<uuid:gate>/", bundles_views.imported_gate, name="imported_gate"),
    path("artifacts/<uuid:artifact>/", artifacts_views.artifact_file, name="artifact"),
    path("approvals/<uuid:gate>/people/", people_views.gate_people_page, name="gate_people"),
    path("approvals/<uuid:gate>/history/", history_views.gate_as_of, name="gate_history"),
    path(
        "approvals/exemptions/<uuid:exemption>/history/",
        history_views.exemption_page,
        name="exemption",
    ),
    path("incidents/", incidents_views.incidents_page, name="incidents"),
    path("incidents/open/", incidents_views.open_incident_page, name="open_incident"),
    path("incidents/add/", incidents_views.add_to_incident_page, name="add_to_incident"),
    path("incidents/<uuid:incident>/", incidents_views.incident_page, name="incident"),
    path(
        "incidents/<uuid:incident>/note/", incidents_views.note_incident_page, name="note_incident"
    ),
    path(
        "incidents/<uuid:incident>/change/",
        incidents_views.change_incident_page,
        name="change_incident",
    ),
    path(
        "incidents/<uuid:incident>/members/",
        incidents_views.add_member_page,
        name="add_to_this_incident",
    ),
    path(
        "incidents/<uuid:incident>/members/<uuid:member>/remove/",
        incidents_views.remove_member_page,
        name="remove_member_of_incident",
    ),
    path("journal/", journal_views.journal_page, name="journal"),
    path("stuck/", stuck_views.stuck, name="stuck"),
    path("stuck/<str:rule>/<uuid:subject>/", stuck_views.stuck_care, name="stuck_care"),
    path("search/", search_views.search_page, name="search"),
    path("search/complete/", search_views.complete_query_page, name="search_complete"),
    path("search/language/", search_views.search_language, name="search_language"),
    path("search/questions/", questions_views.questions_page, name="questions"),
    path("search/questions/<int:number>/", questions_views.run_question, name="question"),
    path("search/link/", search_views.permalink_page, name="search_link"),
    path("search/saved/", saved_views.saved_queries, name="saved_queries"),
    path("search/saved/<uuid:saved_query>/", saved_views.saved_query, name="saved_query"),
    path(
        "search/saved/<uuid:saved_query>/alerts/",
        alerts_views.switch_alerts,
        name="saved_query_alerts",
    ),
    path("search/case/", case_views.case_file_page, name="case_file"),
    path("search/exports/", exports_views.export, name="export"),
    path("search/exports/<uuid:export>/", exports_views.export_job, name="export_job"),
    path("search/exports/<uuid:export>/file/", exports_views.export_file, name="export_file"),
    path("search/jump/", search_views.jump_to_id, name="search_jump"),
    path("sessions/<uuid:session>/messages/", views.session_messages, name="session_messages"),
    path("sessions/<uuid:session>/messages/send/", views.send_to_session, name="send_to_session"),
    path("agents/<uuid:agent>/", agents_views.agent_overview, name="agent"),
    path(
        "agents/<uuid:agent>/settings/", settings_views.agent_settings_page, name="agent_settings"
    ),
    path(
        "agents/<uuid:agent>/settings/team/",
        settings_views.change_agent_team,
        name="change_agent_team",
    ),
    path(
        "agents/<uuid:agent>/settings/charter/", settings_views.agent_charter, name="agent_charter"
    ),
    path("people/<int:person>/", people_views.reviewer_page, name="reviewer"),
    path("help/", help_views.help_page, name="help"),
    path("help/glossary/", help_views.glossary_page, name="glossary"),
    path("navigation/counts/", navigation_views.navigation_counts, name="counts"),
    path("navigation/project/", navigation_views.switch_project, name="switch_project"),
    path("verdicts/", verdicts_views.verdicts_page, name="verdicts"),
    path("tools/", tools_views.tools_page, name="tools"),
    path("messages/", views.shared_messages, name="shared_messages"),
    path("agents/<uuid:agent>/messages/", views.agent_messages, name="agent_messages"),
    path("agents/<uuid:agent>/messages/send/", views.send_to_agent, name="send_to_agent"),
    path("journal/<int:position>/erase/", erase_views.erase_body_page, name="erase_body"),
]
