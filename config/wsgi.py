"""WSGI application. Agents' requests skip the middleware that people's use."""

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterable
from typing import Any, cast

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
gc.disable()  # until all is loaded

import django

django.setup()

from django.conf import settings
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from django.http import HttpRequest, HttpResponseBase
from django.urls import get_resolver, set_urlconf

from approvals.gates import listener
from config.shutdown import register_shutdown_callback
from db.sqlite import connection_pool, wal_checkpointer
from db.sqlite.write_queue import prioritize_person

AGENTS_URLCONF = "config.api_urls"
AGENTS_PREFIXES = ("/api/", "/v1/")


class AgentsHandler(WSGIHandler):
    """Django without middleware and with the agents' URLconf, for /api/ and /v1/.

    Agents need no login sessions, cookies or CSRF tokens, and the middleware costs more than
    storing an event. The URLconf's handler404 and handler500 shape the errors.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._middleware_chain = convert_exception_to_response(self._get_response)  # type: ignore[attr-defined]  # unannotated in Django

    def get_response(self, request: HttpRequest) -> HttpResponseBase:
        set_urlconf(AGENTS_URLCONF)
        request.urlconf = AGENTS_URLCONF
        response = cast(HttpResponseBase, self._middleware_chain(request))
        # Django closes what an upload left open when it closes the response.
        response._resource_closers.append(request.close)  # type: ignore[attr-defined]  # Django's own, unannotated
        return response


def _dispatcher() -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    people, agents = WSGIHandler(), AgentsHandler()

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ.get("PATH_INFO", "").startswith(AGENTS_PREFIXES):
            return agents(environ, start_response)
        with prioritize_person():
            return people(environ, start_response)

    return application


application = _dispatcher()

if multiprocessing.parent_process() is not None:
    # This is a worker of the web server, and not a test that imports the module.
    if settings.GATEBOOK_NEW_KEYS:
        raise SystemExit(
            f"gatebook: no key {', '.join(settings.GATEBOOK_NEW_KEYS)} is stored; run `manage.py "
            "setup`"
        )
    for urlconf in (settings.ROOT_URLCONF, AGENTS_URLCONF):
        get_resolver(urlconf).url_patterns  # noqa: B018 - loads what requests need, before the first
    connection_pool.enable_pooling()
    if connection.vendor == "sqlite":
        wal_checkpointer.start_checkpointer(str(connection.settings_dict["NAME"]))
    register_shutdown_callback(listener.drain_waiters)
    listener.start_listener()

# What is loaded now stays. A batch creates tens of thousands of objects, hardly any in cycles:
# collecting less often saves a fifth of a batch's Python time.
gc.collect()
gc.freeze()
gc.enable()
gc.set_threshold(20_000, 20, 50)
