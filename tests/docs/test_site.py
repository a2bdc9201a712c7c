"""The documentation site: made from docs/ and from code, complete, and without the network."""

import base64
import gzip
import hashlib
import os
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command, get_commands
from django.test import Client

from api.openapi.document import build_openapi_document
from approvals.policies import policies_yaml
from config.docs_site import made_pages, site_build, site_files
from config.variables import VARIABLES
from ledger.tools.predicates import ARGUMENT_OPERATORS
from monitoring.metric_texts import METRICS
from tests.docs.conftest import REMOVED_FILE

pytestmark = pytest.mark.once
INLINE = re.compile(rb"<(script|style)(?![^>]*(?:\bsrc=|/json))[^>]*>(.*?)</\1>", re.DOTALL)
LOADED = re.compile(r"<(?:script|img|link)\b[^>]*\b(?:src|href)=[\"']?(https?:)?//")


@pytest.fixture(scope="module")
def site(built_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the site, which tests may change."""
    folder = tmp_path_factory.mktemp("docs") / built_site.name
    shutil.copytree(built_site, folder)
    shutil.copy2(built_site.with_name("versions.json"), folder.parent)
    return folder


def test_each_document_is_a_page_under_its_heading(site: Path) -> None:
    listed = [page for heading in site_build.NAVIGATION for page in site_build.list_pages(heading)]
    assert len(listed) == len(set(listed))
    documents = {
        path.relative_to(settings.BASE_DIR / "docs").as_posix()
        for path in (settings.BASE_DIR / "docs").rglob("*.md")
    }
    made = {*made_pages.MADE_PAGES, *site_files.FROM_ROOT.values()}
    assert set(listed) == documents - {"README.md"} | made
    for page in listed:
        assert (site / page.removesuffix("README.md").removesuffix(".md") / "index.html").is_file()
    assert settings.GATEBOOK_VERSION in (site.parent / "versions.json").read_text()


def test_nothing_comes_from_elsewhere_and_inline_parts_are_in_the_policy(site: Path) -> None:
    policy = (site / site_files.POLICY_NAME).read_text()
    assert "unsafe" not in policy
    assert "http" not in policy
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        text = page.read_bytes()
        assert not LOADED.search(text.decode()), page
        assert b"<td style" not in text
        for _, part in INLINE.findall(text):
            digest = base64.b64encode(hashlib.sha256(part).digest()).decode()
            assert f"'sha256-{digest}'" in policy, page


def test_compressed_files_are_those_of_this_build(site: Path) -> None:
    files = list(site.rglob("*.gz"))
    assert len(files) > 100
    for file in files:
        assert gzip.decompress(file.read_bytes()) == file.with_suffix("").read_bytes(), file
    assert not (site / REMOVED_FILE).exists()
    texts = [path for path in site.rglob("*") if path.suffix in {".html", ".js", ".css", ".json"}]
    large = [path for path in texts if path.stat().st_size > 1000]
    assert [path for path in large if not path.with_name(f"{path.name}.gz").exists()] == []


def test_links_that_leave_the_documents_become_paths(site: Path) -> None:
    text = (site / "explanation" / "verdicts" / "index.html").read_text()
    assert "../../tests/" not in text
    contributing = (site / "contributing" / "index.html").read_text()
    assert 'href="../architecture/"' in contributing


def test_the_reference_names_everything_that_the_code_has() -> None:
    endpoints = made_pages.build_endpoints_page()
    for path, methods in build_openapi_document()["paths"].items():
        for method in methods:
            if method not in ("parameters", "servers"):
                assert f"### `{method.upper()} {path}`" in endpoints
    commands = made_pages.build_manage_page()
    for name, app in get_commands().items():
        if (settings.BASE_DIR / app.partition(".")[0]).is_dir():
            assert f"## {name}\n" in commands, name
    assert "## gatebook resume-runner\n" in made_pages.build_gatebook_page()
    client = made_pages.build_client_page()
    for name in ("Client", "AsyncSession", "PermissionRefused", "Result"):
        assert f"## {name}\n" in client


def test_the_reference_has_every_setting_metric_and_policy_key() -> None:
    page = made_pages.build_settings_page()
    for group in VARIABLES.values():
        assert [each.name for each in group if f"| `{each.name}` |" not in page] == []
    page = made_pages.build_metrics_page()
    assert [name for name in METRICS if f"| `{name}` |" not in page] == []
    page = made_pages.build_policy_file_page()
    keys = {
        *policies_yaml.TOP_KEYS,
        *policies_yaml.HOURS_KEYS,
        *policies_yaml.RULE_KEYS,
        *policies_yaml.MATCH_KEYS,
        *policies_yaml.RATE_KEYS,
        *policies_yaml.REQUIRE_KEYS,
        *policies_yaml.RATIONALE_KEYS,
        *policies_yaml.EVIDENCE_KEYS,
        *ARGUMENT_OPERATORS,
    }
    assert [key for key in keys if f"| `{key}` |" not in page] == []


def test_a_link_to_a_table_in_code_leads_to_its_page(site: Path) -> None:
    operating = (site / "how-to" / "operating" / "index.html").read_text()
    for name in ("settings", "metrics"):
        assert f'href="../../reference/{name}/"' in operating


@pytest.mark.matrix
def test_a_dead_link_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "reference/endpoints.md"
    monkeypatch.setitem(made_pages.MADE_PAGES, page, lambda: "# Dead\n\n[link](missing.md)\n")
    monkeypatch.setattr(site_build, "build_site", partial(site_build.build_site, tmp_path))
    with pytest.raises(CommandError, match="The site was not built: Aborted with 1 warning"):
        call_command("build_docs")


@pytest.mark.matrix
@pytest.mark.django_db
def test_the_address_leads_to_a_site_that_is_built_while_the_server_runs(
    site: Path, monkeypatch: pytest.MonkeyPatch, client: Client, tmp_path: Path
) -> None:
    monkeypatch.setattr(site_files, "BUILD_FOLDER", tmp_path)
    monkeypatch.setattr(site_files, "LOCK", tmp_path / "docs.lock")
    monkeypatch.setattr(site_files, "DOCS_FOLDER", tmp_path / "docs")
    answer = client.get("/docs/")
    assert answer.status_code == 404
    assert "make docs" in answer.content.decode()
    assert "Refresh" not in answer.headers  # nothing builds it
    with site_files.lock_build():
        answer = client.get("/docs/")
    assert (answer.status_code, answer.headers["Refresh"]) == (202, "4")
    assert "is being built" in answer.content.decode()

    page = f"/docs/{settings.GATEBOOK_VERSION}/"
    assert client.get(page).status_code == 404
    shutil.copytree(site.parent, tmp_path / "docs")
    assert client.get("/docs/").headers["Location"] == page
    answer = client.get(page)
    assert b"Gatebook" in b"".join(answer)
    assert "'sha256-" in answer.headers["Content-Security-Policy"]

    copy = tmp_path / page.strip("/")
    (copy / "index.html").write_text("built again")
    (copy / "index.html.gz").unlink()
    os.utime(copy / site_files.POLICY_NAME)
    answer = client.get(page, headers={"Accept-Encoding": "gzip"})
    assert b"".join(answer) == b"built again"

    removed = f"{page}glossary/"
    assert client.get(removed).status_code == 200
    shutil.rmtree(copy / "glossary")
    os.utime(copy / site_files.POLICY_NAME)
    assert client.get(removed).status_code == 404


def test_a_site_is_current_until_a_source_changes(
    site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not site_files.is_site_current(tmp_path)
    assert site_files.is_site_current(site)
    monkeypatch.setattr(site_build, "build_site", pytest.fail)
    monkeypatch.setattr(site_files, "DOCS_FOLDER", site.parent)
    call_command("build_docs", if_older=True)
    monkeypatch.setattr(site_files, "ROOT", tmp_path)
    document = tmp_path / "docs" / "new.md"
    document.parent.mkdir()
    document.touch()
    assert not site_files.is_site_current(site)
    build_time = site_files.read_build_time(site)
    for path in (document, document.parent):
        os.utime(path, ns=(build_time, build_time))
    assert site_files.is_site_current(site)
    document.unlink()
    assert not site_files.is_site_current(site)


def test_versions_are_kept_and_listed_the_newest_first(site: Path) -> None:
    for version in ("0.0.9", "0.0.10"):
        (site.parent / version).mkdir()
        (site.parent / version / site_files.POLICY_NAME).touch()
    names = [row["version"] for row in site_build.list_versions(site.parent)]
    assert names == [settings.GATEBOOK_VERSION, "0.0.10", "0.0.9"]
