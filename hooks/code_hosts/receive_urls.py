"""URLs of code hosts' webhooks below /api/v1/hooks/."""

from django.urls import path

from hooks.code_hosts import receive

urlpatterns = [
    path("github", receive.take_webhooks("github")),
    path("github/<uuid:source>", receive.take_webhooks("github")),
    path("gitlab", receive.take_webhooks("gitlab")),
    path("gitlab/<uuid:source>", receive.take_webhooks("gitlab")),
]
