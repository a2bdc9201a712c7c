"""Download of the stand-alone verifier."""

from functools import cache
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from proofs.verifier import gatebook_verify


@require_safe
def verifier_file(_request: HttpRequest) -> HttpResponse:
    """Download `gatebook_verify.py`; everybody may, as it comes with the source."""
    response = HttpResponse(_read_verifier(), content_type="text/x-python; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="gatebook-verify.py"'
    return response


@cache
def _read_verifier() -> bytes:
    return Path(gatebook_verify.__file__).read_bytes()
