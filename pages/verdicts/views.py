"""The verdict table page."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from ledger.verdicts import labels, table


@require_safe
@member_required
def verdicts_page(request: MemberRequest) -> HttpResponse:
    """Show the verdict table row by row."""
    return render(
        request,
        "pages/verdicts/verdicts.html",
        {"rows": labels.VERDICT_ROWS, "version": table.TABLE_VERSION},
    )
