"""Request admission: the largest body per path, and whether its sender is known.

This is the only module of the server that knows the application.
"""

import re
from typing import Final

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.db import DatabaseError, DataError, InterfaceError, connection
from django.http import parse_cookie

from accounts import tokens
from accounts.sign_in_store import SessionStore
from api.endpoint import BATCH_BYTES
from hooks.code_hosts import source_addresses
from hooks.coding_agents.hook_bodies import HOOK_BYTES
from traces.spans import REQUEST_BYTES

AGENTS_PREFIXES: Final = ("/api/", "/v1/")
_HOOKS_PREFIX: Final = "/api/v1/hooks/"
TRACES_PATH: Final = "/v1/traces"
_ARTIFACT_BYTES: Final = re.compile(r"/api/v1/artifacts/[^/]+/bytes", re.ASCII)


def find_most_bytes(path: str) -> int:
    """Return the largest body that any view at `path` reads."""
    if _ARTIFACT_BYTES.fullmatch(path):
        return max(settings.GATEBOOK_ARTIFACT_BYTES, BATCH_BYTES)
    if (address := source_addresses.parse_source_address(path)) is not None:
        return source_addresses.find_most_delivery_bytes(address)
    if path.startswith(_HOOKS_PREFIX):
        return HOOK_BYTES
    if path == TRACES_PATH:
        return REQUEST_BYTES
    return BATCH_BYTES if path.startswith(AGENTS_PREFIXES) else settings.DATA_UPLOAD_MAX_MEMORY_SIZE


def is_known(path: str, authorization: str, cookie: str) -> bool:
    """Return whether a request has a valid token or, for pages, a sign-in.

    A code host sends no token: the address of a source is known if there is such a source. Checks
    no permissions. Runs in a thread of the application and closes its database connection.
    """
    try:
        if (address := source_addresses.parse_source_address(path)) is not None:
            return source_addresses.has_source(address)
        if path.startswith(AGENTS_PREFIXES):
            return tokens.authenticate_token(authorization) is not None
        key = parse_cookie(cookie).get(settings.SESSION_COOKIE_NAME)
        return bool(key) and SESSION_KEY in SessionStore(key)
    except DataError:
        return False  # no sign-in has a key that the database rejects
    except (DatabaseError, InterfaceError):
        return True  # the view will report the same fault
    finally:
        connection.close()
