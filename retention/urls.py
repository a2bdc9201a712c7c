"""Pages of retention."""

from django.urls import path

from retention import views

urlpatterns = [
    path("", views.retention_page, name="retention"),
    path("<uuid:retention_set>/", views.retention_set_page, name="retention_set"),
    path(
        "<uuid:retention_set>/activate/", views.activate_retention_page, name="activate_retention"
    ),
    path("<uuid:retention_set>/count/", views.repeat_dry_run_page, name="repeat_dry_run"),
]
