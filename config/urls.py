"""URLs of pages and health checks. The agents' URLs are in config/api_urls.py."""

from django.urls import include, path

from api.views import openapi
from config.docs_site.views import docs_start
from monitoring import health
from proofs.verifier import verifier_download

urlpatterns = [
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", health.metrics),
    path("proofs/gatebook-verify.py", verifier_download.verifier_file, name="verifier_file"),
    path("docs/", docs_start, name="docs"),
    path("docs/api/", openapi.show_api_page, name="api"),
    path("", include("pages.urls")),  # the most read ones
    path("", include("accounts.urls")),
    path("", include("approvals.urls")),
    path("", include("notifications.urls")),
    path("", include("hooks.code_hosts.urls")),
    path("erasure/", include("erasure.urls")),
    path("retention/", include("retention.urls")),
    path("", include("proofs.urls")),
    path("", include("proofs.proof_urls")),
]

handler400 = "accounts.views.errors.bad_request"
handler403 = "accounts.views.errors.forbidden"
handler404 = "pages.not_found.render_not_found"
handler500 = "accounts.views.errors.server_error"
