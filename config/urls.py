"""URLs of pages and health checks. The agents' URLs are in agents_urls.py."""

from django.urls import include, path

from ingest.views import about
from inquiry import health

urlpatterns = [
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("docs/api/", about.read_description, name="api"),
    path("", include("sessions.urls")),
    path("", include("ledger.urls")),
    path("", include("approvals.urls")),
    path("", include("inquiry.urls")),
]

handler400 = "sessions.views.errors.bad_request"
handler403 = "sessions.views.errors.forbidden"
handler404 = "inquiry.elsewhere.not_found"
handler500 = "sessions.views.errors.server_error"
