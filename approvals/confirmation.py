"""Confirmed answers: the signed page, the draft and the step-up of an answer.

Voting on a gate and resolving an effect take an answer in two requests. The form sends a signed
token of what its page showed. Its fields wait as a draft in the login session while the confirm
page is open. The confirm page names its draft, because a second window may begin another one, and
asks for the code and the password that the answer needs. Granting an exemption uses the step-up.
"""

import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.contrib.auth import authenticate
from django.core import signing
from django.http import HttpResponse
from django.shortcuts import render

from accounts.access import MemberRequest
from accounts.models import Membership
from approvals.gates.statuses import PASSWORD_VALID_S, US
from db.clock import now_us

WRONG_CODE: Final = "The code does not match. Type the four characters shown above."
WRONG_PASSWORD: Final = (
    "Wrong password. "  # noqa: S105
    "After five wrong passwords, sign-in for your name is locked for 15 minutes."
)
DRAFT_GONE: Final = "This draft was already submitted or discarded in another tab."
OTHER_DRAFT: Final = (
    "Nothing was recorded. You began another answer after this page, perhaps in a second window. "
    "Your latest answer is shown here."
)
_MAX_PAGE_AGE_S: Final = 12 * 3600  # the length of a sign-in
_PROVED_S: Final = "proved_s"  # key in the login session: when the password was last given
# Whether a password was typed for an answer or for an earlier one: stored with the answer.
FOR_THIS: Final = "this"
FOR_EARLIER: Final = "earlier"


class GivenProof(NamedTuple):
    """What a submitted confirm page proved.

    `errors` are what is wrong with code or password, by field. `password_at_us` is when the
    password was typed and `password_for` for which answer (FOR_THIS or FOR_EARLIER, up to 5 minutes
    before); None and empty if the answer needs none.
    """

    errors: dict[str, str]
    password_at_us: int | None = None
    password_for: str = ""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """A kind of answer: the token of its page, and the form whose draft waits in the login session.

    `answer_fields` make up the answer; `place_fields` only say which page to return to. A field
    keeps `max_characters`: one more than the command accepts, so that the command refuses it.
    """

    kind: str
    answer_fields: tuple[str, ...]
    max_characters: int
    place_fields: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields."""
        return (*self.answer_fields, *self.place_fields)

    def sign_page(self, values: Sequence[Any], membership: Membership) -> str:
        """Return the token for the form of a page that showed `values` to `membership`."""
        return signing.dumps(list(values), salt=self._salt(membership))

    def verify_page(self, token: str, membership: Membership) -> list[Any] | None:
        """Return what a form's page showed; None if its token is forged, old or another's."""
        try:
            values: list[Any] = signing.loads(
                token, salt=self._salt(membership), max_age=_MAX_PAGE_AGE_S
            )
        except signing.BadSignature:
            return None
        return values

    def read_draft(self, request: MemberRequest) -> dict[str, str]:
        """Return the submitted fields."""
        return {name: request.POST.get(name, "")[: self.max_characters] for name in self.fields}

    def load_draft(self, request: MemberRequest, subject: UUID) -> dict[str, str] | None:
        """Return the draft about `subject`, or None."""
        draft: dict[str, str] | None = request.session.get(self._key(subject))
        return draft

    def store_draft(self, request: MemberRequest, subject: UUID, draft: dict[str, str]) -> None:
        """Keep the draft about `subject` until it is recorded, refused or replaced."""
        request.session[self._key(subject)] = {**draft, "stored_us": str(now_us())}

    def discard_draft(self, request: MemberRequest, subject: UUID) -> None:
        """Remove the draft about `subject`, if there is one."""
        request.session.pop(self._key(subject), None)

    def compute_digest(self, draft: dict[str, str]) -> str:
        """Hash an answer, to tell it from others on the same subject, as 64 hex characters."""
        return hashlib.sha256(
            orjson.dumps([draft.get(name, "") for name in self.answer_fields])
        ).hexdigest()

    def is_shown_draft(self, request: MemberRequest, draft: dict[str, str]) -> bool:
        """Return True if the submitted confirm page showed `draft`."""
        return request.POST.get("seen_draft", "") == self.compute_digest(draft)

    def _key(self, subject: UUID) -> str:
        return f"{self.kind}:{subject.hex}"

    def _salt(self, membership: Membership) -> str:
        return f"gatebook.{self.kind}.{membership.user_id}.{membership.project_id.hex}"


def check_step_up(request: MemberRequest, step_up: str, code: str) -> GivenProof:
    """Check code and password of a confirm page; the code is checked first."""
    if step_up == "none":
        return GivenProof({})
    typed = request.POST.get("code", "").strip().lower()
    if step_up == "typed_digest" and not hmac.compare_digest(typed.encode(), code.encode()):
        return GivenProof({"code": WRONG_CODE})
    if is_recently_proved(request):
        return GivenProof({}, password_given_at_us(request), FOR_EARLIER)
    if check_password(request, request.POST.get("password", "")):
        return GivenProof({}, password_given_at_us(request), FOR_THIS)
    return GivenProof({"password": WRONG_PASSWORD})


def is_recently_proved(request: MemberRequest) -> bool:
    """Return True if the password was given within the last 5 minutes."""
    given = request.session.get(_PROVED_S)
    return isinstance(given, int) and 0 <= time.time() - given <= PASSWORD_VALID_S


def password_given_at_us(request: MemberRequest) -> int | None:
    """Return when the password was last given since sign-in; None if never."""
    given = request.session.get(_PROVED_S)
    return given * US if isinstance(given, int) else None


def find_counting_password_us(request: MemberRequest) -> int | None:
    """Return when the password was given that still counts; None if it must be given again."""
    return password_given_at_us(request) if is_recently_proved(request) else None


def password_counts_until_us(request: MemberRequest) -> int | None:
    """Return until when the last password counts; None if it must be given again."""
    given = find_counting_password_us(request)
    return given + PASSWORD_VALID_S * US if given is not None else None


def check_password(request: MemberRequest, password: str) -> bool:
    """Check the user's password.

    A wrong password counts as a failed sign-in; the fifth locks sign-in for the name.
    """
    user = authenticate(request, username=request.user.get_username(), password=password)
    if user is None or user.pk != request.user.pk:
        return False
    request.session[_PROVED_S] = int(time.time())
    return True


def render_confirm_page(
    request: MemberRequest,
    template: str,
    form: AnswerForm,
    draft: dict[str, str],
    step_up: str,
    code: str,
    context: dict[str, Any],
    *,
    errors: dict[str, str] | None = None,
    other: bool = False,
    refused: bool = False,
) -> HttpResponse:
    """Render a confirm page: `context`, the draft and the fields of its step-up.

    `errors` are those of the step-up, by field; `refused` tells that `context` has others. `other`:
    the submitted page showed another draft.
    """
    proof = {
        "draft": draft,
        "digest": form.compute_digest(draft),
        "typing": step_up == "typed_digest",
        "password": step_up != "none" and not is_recently_proved(request),
        "password_until_us": password_counts_until_us(request) if step_up != "none" else None,
        "code": code,
        "typed": "" if other else request.POST.get("code", "")[:8],
        "errors": errors or {},
        "other": OTHER_DRAFT if other else "",
    }
    status = 409 if other else 422 if errors or refused else 200
    return render(request, template, context | proof, status=status)
