"""The address /docs/: the site of this version, or why there is none yet."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from config.docs_site import site_files


@require_safe
def docs_start(request: HttpRequest) -> HttpResponse:
    """Lead to the documentation of this version. It is public, as the repository's files are."""
    if site_files.read_build_time(site_files.DOCS_FOLDER / settings.GATEBOOK_VERSION):
        return redirect(f"/docs/{settings.GATEBOOK_VERSION}/")
    is_being_built = site_files.is_being_built()
    context = {"is_being_built": is_being_built}
    status = 202 if is_being_built else 404
    response = render(request, "docs_site/not_built.html", context, status=status)
    if is_being_built:
        response["Refresh"] = "4"
    return response
