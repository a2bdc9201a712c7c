"""The page that describes the API to people."""

from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import escape

from accounts.models import Membership, Project
from api.openapi.document import ENDPOINTS, ERROR_DESCRIPTIONS, build_openapi_document
from api.openapi.foreign_formats import FOREIGN_ENDPOINTS
from api.schemas.core import REPORTED
from tests.api.api_client import Caller
from tests.rows_with_entries import add_row, mark_own_password


def test_the_page_names_every_call_field_and_refusal(agent: Caller) -> None:
    user = User.objects.create_user("ann")
    mark_own_password(user)
    add_row(Membership(user=user, project=Project.objects.get(name="default"), role="viewer"))
    browser = Client()
    assert browser.get("/docs/api/").status_code == 302
    browser.force_login(user)
    answer = browser.get("/docs/api/")
    assert answer.status_code == 200
    text = answer.content.decode()
    for endpoint in (*ENDPOINTS, *FOREIGN_ENDPOINTS):
        assert f"<code>{endpoint.method.upper()} {endpoint.path}</code>" in text
        if endpoint.shape is not None:
            for field in build_openapi_document()["components"]["schemas"][endpoint.shape.__name__][
                "properties"
            ]:
                assert f"<dt><code>{field}</code></dt>" in text
    for status, sentence in ERROR_DESCRIPTIONS.items():
        assert str(status) in text
        assert escape(sentence) in text
    for kind in REPORTED:
        assert f"<code>{kind}</code>" in text
    assert "any JSON value" in text
    assert "object of repository, ref, environment, resource" in text
    assert browser.post("/docs/api/").status_code == 405
