"""The version is in pyproject.toml only. Pages and the API's description show it."""

import tomllib
from pathlib import Path

import pytest

from api.openapi.document import build_openapi_document
from tests.pages.people import build

ROOT = Path(__file__).resolve().parents[2]


def read_version(folder: str) -> str:
    with (ROOT / folder / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


@pytest.mark.matrix
@pytest.mark.django_db
def test_every_page_shows_the_version() -> None:
    page = build().client("viewer").get("/tools/").content.decode()
    assert f"<span>Gatebook {read_version('.')}</span>" in page


@pytest.mark.once
def test_the_description_of_the_api_has_the_version() -> None:
    assert build_openapi_document()["info"]["version"] == read_version(".")


@pytest.mark.once
def test_the_client_has_the_version_of_gatebook() -> None:
    assert read_version("client") == read_version(".")
