"""URLs of the layout, sign-in, settings and messages."""

from django.urls import path

from sessions.views import (
    erasure,
    frame,
    invitations,
    messages,
    own,
    people,
    repositories,
    sign,
    teams,
    tokens,
)

urlpatterns = [
    path("", frame.home, name="home"),
    path("help/", frame.help_page, name="help"),
    path("counts/", frame.counts, name="counts"),
    path("project/", frame.switch_project, name="switch_project"),
    path("sign-in/", sign.sign_in, name="sign_in"),
    path("sign-out/", sign.sign_out, name="sign_out"),
    path("settings/appearance/", own.appearance, name="appearance"),
    path("settings/clock/", frame.clock, name="clock"),
    path("settings/shortcuts/", own.shortcuts, name="shortcuts"),
    path("settings/password/", sign.change_password, name="password"),
    path("settings/invitations/", invitations.invitations_page, name="invitations"),
    path("settings/people/", people.people_page, name="people"),
    path(
        "settings/people/<uuid:invitation>/withdraw/",
        people.withdraw_invitation,
        name="withdraw_invitation",
    ),
    path("settings/people/<uuid:member>/role/", people.change_role, name="change_role"),
    path("settings/people/<uuid:member>/password/", people.reset_password, name="reset_password"),
    path("settings/people/<uuid:member>/remove/", people.remove_person, name="remove_person"),
    path("settings/teams/", teams.teams_page, name="teams"),
    path("settings/teams/<uuid:team>/add/", teams.add_to_team, name="add_to_team"),
    path("settings/teams/<uuid:team>/remove/", teams.remove_from_team, name="remove_from_team"),
    path("settings/teams/<uuid:team>/dissolve/", teams.dissolve_team, name="dissolve_team"),
    path("settings/tokens/", tokens.tokens_page, name="tokens"),
    path("settings/tokens/<uuid:token>/revoke/", tokens.revoke_token, name="revoke_token"),
    path("settings/agents/<uuid:agent>/", tokens.agent_page, name="agent"),
    path("settings/agents/<uuid:agent>/team/", tokens.change_team, name="change_agent_team"),
    path("sessions/<uuid:session>/messages/", messages.session_messages, name="session_messages"),
    path(
        "sessions/<uuid:session>/messages/send/", messages.send_to_session, name="send_to_session"
    ),
    path("messages/", messages.shared_messages, name="shared_messages"),
    path("agents/<uuid:agent>/messages/", messages.agent_messages, name="agent_messages"),
    path("agents/<uuid:agent>/messages/send/", messages.send_to_agent, name="send_to_agent"),
    path("entries/<int:position>/erase/", erasure.erase_body, name="erase_body"),
    path("settings/repositories/", repositories.repositories_page, name="repositories"),
    path(
        "settings/repositories/<uuid:repository>/", repositories.repository_page, name="repository"
    ),
]
