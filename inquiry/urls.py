"""The reading pages."""

from django.urls import path

from inquiry.views import audit, bundles, effects, exports, questions, resolve, resume, saved, sessions, stuck, work

urlpatterns = [
    path("sessions/", sessions.sessions, name="sessions"),
    path("sessions/<uuid:session>/", sessions.session, name="session"),
    path("sessions/<uuid:session>/timeline/", sessions.session_timeline, name="session_timeline"),
    path("sessions/<uuid:session>/resume/", resume.session_resume, name="session_resume"),
    path("sessions/<uuid:session>/tasks/", sessions.session_tasks, name="session_tasks"),
    path("sessions/<uuid:session>/decisions/", work.session_decisions, name="session_decisions"),
    path("sessions/<uuid:session>/handoffs/", work.session_handoffs, name="session_handoffs"),
    path("sessions/<uuid:session>/state/", work.session_state, name="session_state"),
    path("sessions/<uuid:session>/artifacts/", sessions.session_artifacts, name="session_artifacts"),
    path("sessions/<uuid:session>/export/", bundles.export_bundle, name="export_bundle"),
    path("sessions/<uuid:session>/bundle/", bundles.session_bundle, name="session_bundle"),
    path("sessions/<uuid:session>/why/", stuck.session_why, name="session_why"),
    path("tasks/<uuid:task>/", sessions.task, name="task"),
    path("effects/<uuid:effect>/", effects.effect, name="effect"),
    path("effects/<uuid:effect>/resolve/", resolve.resolve, name="resolve"),
    path("effects/<uuid:effect>/resolve/confirm/", resolve.confirm, name="resolve_confirm"),
    path("effects/<uuid:effect>/facts/<int:position>/raw/", effects.raw_fact, name="raw_fact"),
    path("imported-gates/<uuid:gate>/", bundles.imported_gate, name="imported_gate"),
    path("artifacts/<uuid:artifact>/", effects.artifact, name="artifact"),
    path("stuck/", stuck.stuck, name="stuck"),
    path("stuck/<str:rule>/<uuid:subject>/", stuck.stuck_care, name="stuck_care"),
    path("audit/", audit.audit, name="audit"),
    path("audit/complete/", audit.complete, name="audit_complete"),
    path("audit/language/", audit.language, name="audit_language"),
    path("audit/questions/", questions.questions, name="questions"),
    path("audit/questions/<int:number>/", questions.question, name="question"),
    path("audit/link/", questions.audit_link, name="audit_link"),
    path("audit/saved/", saved.saved_queries, name="saved_queries"),
    path("audit/saved/<uuid:saved_query>/", saved.saved_query, name="saved_query"),
    path("audit/export/", exports.export, name="export"),
    path("audit/exports/<uuid:export>/", exports.export_job, name="export_job"),
    path("audit/exports/<uuid:export>/file/", exports.export_file, name="export_file"),
    path("go/", audit.go, name="go"),
]
