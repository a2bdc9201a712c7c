"""URLs of the pages of code hosts."""

from django.urls import path

from hooks.code_hosts import settings_views, views

urlpatterns = [
    path("code-hosts/", views.code_hosts_page, name="code_hosts"),
    path("code-hosts/<uuid:delivery>/", views.delivery_page, name="delivery"),
    path("code-hosts/<uuid:delivery>/question/", views.question_match, name="question_match"),
    path("settings/code-hosts/", settings_views.code_host_sources_page, name="code_host_sources"),
    path(
        "settings/code-hosts/<uuid:source>/",
        settings_views.code_host_source_page,
        name="code_host_source",
    ),
    path(
        "settings/code-hosts/<uuid:source>/switch/",
        settings_views.switch_code_host_source,
        name="switch_code_host_source",
    ),
    path(
        "settings/code-hosts/agents/<uuid:agent>/",
        settings_views.agent_identities_page,
        name="agent_identities",
    ),
    path(
        "settings/code-hosts/identities/<uuid:identity>/remove/",
        settings_views.remove_agent_identity,
        name="remove_agent_identity",
    ),
]
