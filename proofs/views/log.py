"""The sealed log in the form of C2SP tlog-tiles: checkpoint, tiles of hashes, bundles of entries.

The public keys, and the notes by which a key endorses the next one, are listed next to them.

Hashes are public, so that anyone who reaches the server can audit; a hash reveals nothing, because
every entry with a body includes a commitment with a random salt. A bundle of entries holds
neighbours in the tree, of any project, and must not be changed to match its hashes. So only a
member of all projects in a bundle reads it.
"""

import re
from typing import Final

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from proofs import entry_bundles
from proofs.merkle import HASH_BYTES, TILE_WIDTH
from proofs.signing_keys import format_key_chain, load_signing_keys
from proofs.tree_heads import load_last_head
from proofs.tree_store import load_tile

_TILE_NAME: Final = re.compile(r"((?:x[0-9]{3}/){0,5}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")
_IMMUTABLE: Final = "max-age=31536000, immutable"


@require_safe
def checkpoint(request: HttpRequest) -> HttpResponse:
    """Answer with the newest tree head, a signed note."""
    head = load_last_head()
    if head is None:
        raise Http404("No tree head is signed yet.")
    # A tree head is signed at most every 10 s.
    return _respond(head.note, "text/plain; charset=utf-8", "no-cache")


@require_safe
def key_chain(request: HttpRequest) -> HttpResponse:
    """Answer with all public keys, and the notes in which a key names the next one."""
    keys = load_signing_keys()
    if not keys:
        raise Http404("No key signs tree heads yet.")
    return _respond(format_key_chain(keys), "text/plain; charset=utf-8", "no-cache")


@require_safe
def hash_tile(request: HttpRequest, level: int, name: str) -> HttpResponse:
    """Answer with the hashes of a full or partial tile."""
    index, width = _parse_tile_name(name)
    hashes = load_tile(level, index) if level <= 63 else b""
    if len(hashes) < width * HASH_BYTES:
        raise Http404("There is no such tile.")
    content_type = "application/octet-stream"
    return _respond(hashes[: width * HASH_BYTES], content_type, f"public, {_IMMUTABLE}")


@require_safe
@member_required
def entry_tile(request: MemberRequest, name: str) -> HttpResponse:
    """Answer with the leaves of a tile, each after its length in two bytes."""
    index, width = _parse_tile_name(name)
    projects = [membership.project_id for membership in request.memberships]
    try:
        bundle = entry_bundles.load_entry_bundle(index, width, projects)
    except entry_bundles.HiddenEntriesError as reason:
        return HttpResponse(f"{reason}\n", status=403, content_type="text/plain; charset=utf-8")
    except LookupError as reason:
        raise Http404(str(reason)) from reason
    return _respond(bundle, "application/octet-stream", f"private, {_IMMUTABLE}")


def _parse_tile_name(name: str) -> tuple[int, int]:
    """Return index and width of `x001/x234/067.p/12`. Raises Http404."""
    match = _TILE_NAME.fullmatch(name)
    index = match[1].replace("/", "").replace("x", "") if match else ""
    # Only the shortest name counts: x000/001 is no tile.
    if match is None or (len(index) > 3 and index.startswith("000")):
        raise Http404("There is no such tile.")
    width = int(match[2] or TILE_WIDTH)
    if match[2] and width >= TILE_WIDTH:
        raise Http404("There is no such tile.")
    return int(index), width


def _respond(content: bytes | str, content_type: str, caching: str) -> HttpResponse:
    return HttpResponse(content, content_type=content_type, headers={"Cache-Control": caching})
