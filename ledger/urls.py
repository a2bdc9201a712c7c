"""URL of the verdict table page."""

from django.urls import path

from ledger import views

urlpatterns = [
    path("verdicts/", views.verdicts_page, name="verdicts"),
]
