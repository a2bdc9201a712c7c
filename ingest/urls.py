"""The agents' doors below /api/v1/."""

from django.urls import path

from ingest.views import about, artifacts, effects, events, gates, messages, sessions

urlpatterns = [
    path("sessions", sessions.sessions_door),
    path("sessions/<uuid:session>", sessions.get_session),
    path("sessions/<uuid:session>/end", sessions.end_session),
    path("sessions/<uuid:session>/tasks", sessions.tasks_door),
    path("tasks/<uuid:task>/change", sessions.change_task),
    path("tasks/<uuid:task>/done", sessions.finish_task),
    path("tasks/<uuid:task>/items", sessions.items_door),
    path("effects", effects.effects),
    path("effects/<uuid:effect>", effects.get_effect),
    path("effects/<uuid:effect>/dispatch", effects.dispatch_effect),
    path("effects/<uuid:effect>/acknowledge", effects.acknowledge_effect),
    path("effects/<uuid:effect>/fail", effects.fail_effect),
    path("effects/<uuid:effect>/compensate", effects.compensate_effect),
    path("effects/<uuid:effect>/supersede", effects.supersede_effect),
    path("gates", gates.list_gates),
    path("gates/wait", gates.wait_for_gates),
    path("gates/<uuid:gate>", gates.get_gate),
    path("gates/<uuid:gate>/cancel", gates.cancel_gate),
    path("artifacts", artifacts.record_artifact),
    path("artifacts/<uuid:artifact>", artifacts.get_artifact),
    path("artifacts/<uuid:artifact>/bytes", artifacts.bytes_door),
    path("messages", messages.messages_door),
    path("messages/<uuid:message>", messages.get_message),
    path("messages/<uuid:message>/read", messages.read_message),
    path("events", events.post_events),
    path("events/receipt", events.receipt),
    path("limits", about.get_limits),
    path("openapi.json", about.openapi),
]
