"""The doors of the desk."""

from django.urls import path

from approvals.views import batch, decide, desk, stops

urlpatterns = [
    path("approvals/", desk.inbox_page, name="inbox"),
    path("approvals/batch/", batch.choose, name="batch"),
    path("approvals/batch/confirm/", batch.confirm, name="batch_confirm"),
    path("approvals/holds/", stops.holds_page, name="holds"),
    path("approvals/holds/new/", stops.stop, name="stop"),
    path("approvals/holds/<uuid:hold>/lift/", stops.lift, name="lift"),
    path("approvals/<uuid:gate>/", desk.gate_page, name="gate"),
    path("approvals/<uuid:gate>/answer/", decide.answer, name="gate_answer"),
    path("approvals/<uuid:gate>/confirm/", decide.confirm, name="gate_confirm"),
    path("approvals/<uuid:gate>/extend/", decide.extend, name="gate_extend"),
    path("approvals/<uuid:gate>/revoke/", decide.revoke, name="gate_revoke"),
]
