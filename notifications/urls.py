"""Pages of notifications."""

from django.urls import path

from notifications import views

urlpatterns = [
    path("settings/notifications/", views.notifications_page, name="notifications"),
    path("settings/notifications/<uuid:channel>/", views.channel_page, name="channel"),
    path(
        "settings/notifications/<uuid:channel>/switch/", views.toggle_channel, name="switch_channel"
    ),
    path("settings/notifications/<uuid:channel>/test/", views.send_test, name="try_channel"),
    path(
        "settings/notifications/<uuid:channel>/remove/", views.remove_channel, name="remove_channel"
    ),
]
