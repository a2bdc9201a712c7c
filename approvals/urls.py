"""URLs of the approval, policy, exemption and notification pages."""

from django.urls import path

from approvals.views import batch, decide, desk, exemptions, notices, policies, stops, whole

urlpatterns = [
    path("approvals/", desk.inbox_page, name="inbox"),
    path("approvals/batch/", batch.choose, name="batch"),
    path("approvals/batch/confirm/", batch.confirm, name="batch_confirm"),
    path("approvals/holds/", stops.holds_page, name="holds"),
    path("approvals/holds/new/", stops.stop, name="stop"),
    path("approvals/holds/<uuid:hold>/lift/", stops.lift, name="lift"),
    path("approvals/policies/", policies.policies_page, name="policies"),
    path("approvals/policies/draft/", policies.draft_page, name="policy_draft"),
    path("approvals/policies/sets/<uuid:policy_set>/", policies.policy_set_page, name="policy_set"),
    path(
        "approvals/policies/sets/<uuid:policy_set>/activate/",
        policies.activate_page,
        name="activate_policy",
    ),
    path("approvals/policies/exemptions/", exemptions.exemptions_page, name="exemptions"),
    path(
        "approvals/policies/exemptions/grant/", exemptions.grant_exemption, name="grant_exemption"
    ),
    path(
        "approvals/policies/exemptions/<uuid:exemption>/confirm/",
        exemptions.confirm_exemption,
        name="confirm_exemption",
    ),
    path(
        "approvals/policies/exemptions/<uuid:exemption>/revoke/",
        exemptions.revoke_exemption,
        name="revoke_exemption",
    ),
    path("settings/notices/", notices.notices_page, name="notices"),
    path("settings/notices/<uuid:channel>/", notices.channel_page, name="channel"),
    path("settings/notices/<uuid:channel>/switch/", notices.switch_channel, name="switch_channel"),
    path("settings/notices/<uuid:channel>/test/", notices.try_channel, name="try_channel"),
    path("settings/notices/<uuid:channel>/remove/", notices.remove_channel, name="remove_channel"),
    path("approvals/<uuid:gate>/", desk.gate_page, name="gate"),
    path("approvals/<uuid:gate>/whole/", whole.whole_page, name="gate_whole"),
    path("approvals/<uuid:gate>/arguments/<int:number>/", whole.argument, name="gate_argument"),
    path("approvals/<uuid:gate>/answer/", decide.answer, name="gate_answer"),
    path("approvals/<uuid:gate>/confirm/", decide.confirm, name="gate_confirm"),
    path("approvals/<uuid:gate>/extend/", decide.extend, name="gate_extend"),
    path("approvals/<uuid:gate>/revoke/", decide.revoke, name="gate_revoke"),
]
