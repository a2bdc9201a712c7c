"""Load and remove the sample project."""

import structlog
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts import people
from accounts.access import PROJECT_SESSION_KEY, MemberRequest, role_required
from pages.sample import sample_project

log = structlog.get_logger("gatebook.sample")


@require_POST
@role_required("administrator")
def load_sample_page(request: MemberRequest) -> HttpResponse:
    """Load the sample project, or open the one that the person has."""
    if request.POST.get("do") != "load":
        raise Http404
    samples = sample_project.find_samples(request.user)
    if not samples:
        try:
            samples = [sample_project.load_sample(request.user)]
        except Exception:
            log.exception("sample_failed")
            messages.error(
                request,
                "The sample project could not be loaded; nothing of it is shown. Try again.",
            )
            return redirect("first_steps")
        messages.success(
            request,
            "This is the sample project. Its agents, people and times are made up;"
            " what you do here is real and stays here.",
        )
    request.session[PROJECT_SESSION_KEY] = str(samples[0].pk)
    return redirect("inbox")


@require_POST
@role_required("administrator")
def remove_sample_page(request: MemberRequest) -> HttpResponse:
    """Remove the current project, if it is a sample."""
    project = request.membership.project
    if not project.is_sample or request.POST.get("do") != "remove":
        raise Http404
    sample_project.remove_sample(project, people.ensure_pseudonym(request.user))
    messages.success(request, "The sample project is removed. Its texts are erased.")
    return redirect("home")
