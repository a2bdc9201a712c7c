"""Help and glossary, also for people who are not signed in."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import attach_membership
from pages.help import glossary

UNTRUSTED_EXAMPLE = (
    "<b>git push</b> \u202eniam nigiro\u202c\nhttps://example.org is text here, and so is this."
)


@require_safe
def help_page(request: HttpRequest) -> HttpResponse:
    """Explain keys, states and ids, also to anonymous users."""
    if request.user.is_authenticated:
        attach_membership(request)
    return render(request, "pages/help/help.html", {"example": UNTRUSTED_EXAMPLE})


@require_safe
def glossary_page(request: HttpRequest) -> HttpResponse:
    """Explain the terms, also to anonymous users."""
    if request.user.is_authenticated:
        attach_membership(request)
    return render(request, "pages/help/glossary.html", {"terms": glossary.load_glossary()})
