"""URLs of the agents' API. config/wsgi.py serves them without middleware."""

from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("ingest.urls")),
]

handler400 = "ingest.views.about.bad_request"
handler404 = "ingest.views.about.not_found"
handler500 = "ingest.views.about.server_error"
