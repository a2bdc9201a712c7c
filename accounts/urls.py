"""URLs of sign-in and of the settings pages."""

from django.urls import path

from accounts.views import (
    appearance,
    connect,
    invitations,
    password,
    people,
    repositories,
    shortcuts,
    sign_in,
    teams,
    tokens,
)

urlpatterns = [
    path("sign-in/", sign_in.sign_in_page, name="sign_in"),
    path("sign-out/", sign_in.sign_out_page, name="sign_out"),
    path("settings/appearance/", appearance.appearance_page, name="appearance"),
    path("settings/appearance/clock/", appearance.set_clock, name="clock"),
    path("settings/shortcuts/", shortcuts.shortcuts_page, name="shortcuts"),
    path("settings/password/", password.change_password_page, name="password"),
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
    path("settings/repositories/", repositories.repositories_page, name="repositories"),
    path(
        "settings/repositories/<uuid:repository>/", repositories.repository_page, name="repository"
    ),
]
