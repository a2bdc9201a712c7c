"""URLs of the agents' API. config/wsgi.py serves them without middleware."""

from django.urls import include, path

urlpatterns = [
    path("api/v1/hooks/", include("hooks.urls")),
    path("api/v1/", include("api.urls")),
    path("v1/", include("traces.urls")),
]

handler400 = "api.views.errors.handle_bad_request"
handler404 = "api.views.errors.handle_not_found"
handler500 = "api.views.errors.handle_server_error"
