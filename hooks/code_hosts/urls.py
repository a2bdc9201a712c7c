"""URLs of the pages of code hosts."""

from django.urls import path

from hooks.code_hosts import source_views, views

urlpatterns = [
    path("code-hosts/", views.code_hosts_page, name="code_hosts"),
    path("code-hosts/<uuid:delivery>/", views.delivery_page, name="delivery"),
    path("code-hosts/<uuid:delivery>/question/", views.question_match, name="question_match"),
    path("settings/code-hosts/", source_views.code_host_sources_page, name="code_host_sources"),
    path(
        "settings/code-hosts/<uuid:source>/",
        source_views.code_host_source_page,
        name="code_host_source",
    ),
    path(
        "settings/code-hosts/<uuid:source>/switch/",
        source_views.switch_code_host_source,
        name="switch_code_host_source",
    ),
    path(
        "settings/code-hosts/agents/<uuid:agent>/",
        source_views.agent_identities_page,
        name="agent_identities",
    ),
    path(
        "settings/code-hosts/identities/<uuid:identity>/remove/",
        source_views.remove_agent_identity,
        name="remove_agent_identity",
    ),
]
