"""URLs of OTLP below /v1/."""

from django.urls import path

from traces.views import post_traces

urlpatterns = [path("traces", post_traces)]
