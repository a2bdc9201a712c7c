"""URLs of the approval, policy, exemption and notification pages."""

from django.urls import path

from approvals.views import (
    arguments,
    batch,
    ended_requests,
    exemptions,
    gate,
    inbox,
    policies,
    reviewing,
    stops,
    vote,
)

urlpatterns = [
    path("approvals/", inbox.inbox_page, name="inbox"),
    path("settings/reviewing/", reviewing.review_settings_page, name="review_settings"),
    path("approvals/batch/", batch.select_batch_page, name="batch"),
    path("approvals/batch/confirm/", batch.confirm_batch_page, name="batch_confirm"),
    path("approvals/ended/", ended_requests.ended_requests_page, name="ended_requests"),
    path("approvals/stops/", stops.stops_page, name="stops"),
    path("approvals/stops/new/", stops.stop_page, name="stop"),
    path("approvals/stops/<uuid:stop>/lift/", stops.lift_stop_page, name="lift"),
    path("approvals/policies/", policies.policies_page, name="policies"),
    path("approvals/policies/draft/", policies.draft_page, name="policy_draft"),
    path("approvals/policies/sets/<uuid:policy_set>/", policies.policy_set_page, name="policy_set"),
    path(
        "approvals/policies/sets/<uuid:policy_set>/activate/",
        policies.activate_page,
        name="activate_policy",
    ),
    path("approvals/exemptions/", exemptions.exemptions_page, name="exemptions"),
    path("approvals/exemptions/grant/", exemptions.grant_exemption, name="grant_exemption"),
    path(
        "approvals/exemptions/<uuid:exemption>/confirm/",
        exemptions.confirm_exemption,
        name="confirm_exemption",
    ),
    path(
        "approvals/exemptions/<uuid:exemption>/revoke/",
        exemptions.revoke_exemption,
        name="revoke_exemption",
    ),
    path("approvals/<uuid:gate>/", gate.gate_page, name="gate"),
    path(
        "approvals/<uuid:gate>/draft/discard/",
        gate.discard_draft_page,
        name="gate_discard_draft",
    ),
    path("approvals/<uuid:gate>/arguments/", arguments.arguments_page, name="gate_arguments"),
    path(
        "approvals/<uuid:gate>/arguments/<int:number>/",
        arguments.download_argument,
        name="gate_argument",
    ),
    path("approvals/<uuid:gate>/vote/", vote.vote_page, name="gate_vote"),
    path("approvals/<uuid:gate>/confirm/", vote.confirm_vote_page, name="gate_confirm"),
    path("approvals/<uuid:gate>/extend/", vote.extend_page, name="gate_extend"),
    path("approvals/<uuid:gate>/comment/", gate.comment_page, name="gate_comment"),
    path("approvals/<uuid:gate>/assign/", gate.assign_page, name="gate_assign"),
    path("approvals/<uuid:gate>/undo/", vote.undo_page, name="gate_undo"),
    path("approvals/<uuid:gate>/revoke/", vote.revoke_page, name="gate_revoke"),
]
