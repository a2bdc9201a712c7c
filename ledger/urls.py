"""URLs of the tools page and the verdict table page."""

from django.urls import path

from ledger import views

urlpatterns = [
    path("tools/", views.tools_page, name="tools"),
    path("verdicts/", views.verdicts_page, name="verdicts"),
]
