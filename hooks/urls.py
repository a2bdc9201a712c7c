"""URLs of hooks below /api/v1/hooks/."""

from django.urls import path

from hooks.code_hosts.receive_urls import urlpatterns as code_host_urls
from hooks.coding_agents import views as coding_agents

urlpatterns = [
    path("claude-code", coding_agents.claude_code_hook),
    path("codex", coding_agents.codex_hook),
    path("gemini", coding_agents.gemini_hook),
    *code_host_urls,
]
