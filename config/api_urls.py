"""URLs of the agents' API. config/wsgi.py serves them without middleware."""

from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("api.urls")),
]

handler400 = "api.views.meta.handle_bad_request"
handler404 = "api.views.meta.handle_not_found"
handler500 = "api.views.meta.handle_server_error"
