"""The address /docs/: the site of this version, or how to build it."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from config.docs_site.site_files import DOCS_FOLDER


@require_safe
def docs_start(request: HttpRequest) -> HttpResponse:
    """Lead to the documentation of this version. It is public, as the repository's files are."""
    if (DOCS_FOLDER / settings.GATEBOOK_VERSION / "index.html").is_file():
        return redirect(f"/docs/{settings.GATEBOOK_VERSION}/")
    return render(request, "docs_site/not_built.html", status=404)
