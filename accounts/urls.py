"""URLs of the layout, sign-in, settings and messages."""

from django.urls import path

from accounts.views import (
    connect,
    home,
    invitations,
    people,
    preferences,
    repositories,
    sign_in,
    teams,
    tokens,
)

urlpatterns = [
    path("help/", home.help_page, name="help"),
    path("help/glossary/", home.glossary_page, name="glossary"),
    path("navigation/counts/", home.navigation_counts, name="counts"),
    path("navigation/project/", home.switch_project, name="switch_project"),
    path("sign-in/", sign_in.sign_in_page, name="sign_in"),
    path("sign-out/", sign_in.sign_out_page, name="sign_out"),
    path("settings/appearance/", preferences.appearance_page, name="appearance"),
    path("settings/appearance/clock/", home.set_clock, name="clock"),
    path("settings/shortcuts/", preferences.shortcuts_page, name="shortcuts"),
    path("settings/password/", sign_in.change_password_page, name="password"),
    path("settings/invitations/", invitations.invitations_page, name="invitations"),
    path("settings/people/", people.people_page, name="people"),
    path(
        "settings/people/<uuid:invitation>/withdraw/",
        people.withdraw_invitation_page,
        name="withdraw_invitation",
    ),
    path("settings/people/<uuid:member>/role/", people.change_role_page, name="change_role"),
    path(
        "settings/people/<uuid:member>/password/", people.reset_password_page, name="reset_password"
    ),
    path("settings/people/<uuid:member>/remove/", people.remove_person_page, name="remove_person"),
    path("settings/teams/", teams.teams_page, name="teams"),
    path("settings/teams/<uuid:team>/add/", teams.add_to_team, name="add_to_team"),
    path("settings/teams/<uuid:team>/remove/", teams.remove_from_team, name="remove_from_team"),
    path("settings/teams/<uuid:team>/dissolve/", teams.delete_team_page, name="dissolve_team"),
    path("settings/connect/claim/", connect.claim_token_endpoint, name="claim_token"),
    path("settings/connect/<str:code>/", connect.connect_page, name="connect"),
    path("settings/tokens/", tokens.tokens_page, name="tokens"),
    path("settings/tokens/<uuid:token>/revoke/", tokens.revoke_token_page, name="revoke_token"),
    path("agents/<uuid:agent>/settings/", tokens.agent_settings_page, name="agent_settings"),
    path("agents/<uuid:agent>/team/", tokens.change_agent_team, name="change_agent_team"),
    path("agents/<uuid:agent>/charter/", tokens.agent_charter, name="agent_charter"),
    path("settings/repositories/", repositories.repositories_page, name="repositories"),
    path(
        "settings/repositories/<uuid:repository>/", repositories.repository_page, name="repository"
    ),
]
