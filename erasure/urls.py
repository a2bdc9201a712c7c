"""Pages of erasure."""

from django.urls import path

from erasure import views

urlpatterns = [
    path("", views.erasures_page, name="erasures"),
    path("new/", views.new_erasure_page, name="new_erasure"),
    path("holds/", views.set_hold_page, name="set_hold"),
    path("holds/<int:hold>/release/", views.release_hold_page, name="release_hold"),
    path("<uuid:erasure>/", views.erasure_page, name="erasure"),
    path("<uuid:erasure>/confirm/", views.confirm_erasure_page, name="confirm_erasure"),
    path("<uuid:erasure>/withdraw/", views.withdraw_erasure_page, name="withdraw_erasure"),
    path("<uuid:erasure>/count/", views.count_erasure_page, name="count_erasure"),
]
