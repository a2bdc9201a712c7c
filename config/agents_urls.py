"""Every door for agents: what config/wsgi.py serves below /api/, without middleware."""

from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("ingest.urls")),
]

handler400 = "ingest.views.about.bad_request"
handler404 = "ingest.views.about.not_found"
handler500 = "ingest.views.about.server_error"
