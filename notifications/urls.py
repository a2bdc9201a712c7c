"""Pages of notifications."""

from django.urls import path

from notifications import views

urlpatterns = [
    path("settings/notices/", views.notifications_page, name="notices"),
    path("settings/notices/<uuid:channel>/", views.channel_page, name="channel"),
    path("settings/notices/<uuid:channel>/switch/", views.toggle_channel, name="switch_channel"),
    path("settings/notices/<uuid:channel>/test/", views.send_test, name="try_channel"),
    path("settings/notices/<uuid:channel>/remove/", views.remove_channel, name="remove_channel"),
]
