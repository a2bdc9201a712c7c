"""Build the site of this version into build/site/docs, next to those of other versions."""

import base64
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from django.conf import settings
from mkdocs.commands import build
from mkdocs.config import load_config
from whitenoise.compress import Compressor

from config.docs_site.made_pages import MADE_PAGES
from config.docs_site.site_files import (
    BUILD_FOLDER,
    DOCS_FOLDER,
    FROM_ROOT,
    POLICY_NAME,
    lock_build,
)

_SCRIPT: Final = re.compile(
    rb"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL
)
_STYLE: Final = re.compile(rb"<style[^>]*>(.*?)</style>", re.DOTALL)
_EMPTY_HEAD: Final = re.compile(rb"<th\b([^>]*)></th>")
_STYLE_ATTRIBUTE: Final = re.compile(rb'(<(?:th|td)\b[^>]*) style="text-align: (\w+);?"')


# Each heading of the navigation with its pages; of a folder, those named first come first.
NAVIGATION: Final[dict[str, tuple[str, ...]]] = {
    "Tutorial": ("tutorial/ten-minutes.md", "tutorial/"),
    "How-to": ("how-to/operating.md", "how-to/"),
    "Reference": (*MADE_PAGES, "reference/", "glossary.md"),
    "Explanation": ("architecture.md", "explanation/"),
    "Decisions": ("decisions/README.md", "decisions/"),
    "Project": ("status.md", *FROM_ROOT.values()),
}


def build_site(folder: Path = DOCS_FOLDER) -> Path:
    """Build the site strictly and return its folder. Raises mkdocs.exceptions.Abort.

    The new site takes the place of the old one only when it is complete.
    """
    site, begun_ns = folder / settings.GATEBOOK_VERSION, time.time_ns()
    new, old = BUILD_FOLDER / "docs-new", BUILD_FOLDER / "docs-old"
    with lock_build():
        for rest in (new, old):
            shutil.rmtree(rest, ignore_errors=True)
        _run_mkdocs(new)
        os.utime(new / POLICY_NAME, ns=(begun_ns, begun_ns))
        folder.mkdir(parents=True, exist_ok=True)
        if site.exists():
            shutil.move(site, old)
        shutil.move(new, site)
        shutil.rmtree(old, ignore_errors=True)
        folder.joinpath("versions.json").write_text(json.dumps(list_versions(folder)), "utf-8")
    return site


def _run_mkdocs(folder: Path) -> None:
    build.build(
        load_config(
            str(Path(__file__).with_name("mkdocs.yml")),
            site_dir=str(folder),
            nav=[{"Home": "README.md"}, *({name: list_pages(name)} for name in NAVIGATION)],
            site_name=f"Gatebook {settings.GATEBOOK_VERSION}",
        )
    )
    pages = sorted(folder.rglob("*.html"))
    for page in pages:
        text = _STYLE_ATTRIBUTE.sub(rb'\1 align="\2"', page.read_bytes())
        # An empty cell is the head of no column. Images below the window load when they come near.
        text = _EMPTY_HEAD.sub(rb"<td\1></td>", text)
        page.write_bytes(text.replace(b"<img ", b'<img loading="lazy" '))
    folder.joinpath(POLICY_NAME).write_text(_build_policy(pages), "utf-8")
    _compress_files(folder)


def _compress_files(folder: Path) -> None:
    """Write each file compressed next to it, for WhiteNoise.

    The folder of a build is new and replaces the old one, so no compressed file is older than the
    file that it stands for.
    """
    compressor = Compressor(use_brotli=False, quiet=True)
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        if compressor.should_compress(file.name) and file.name != POLICY_NAME:
            compressor.compress(str(file))


def list_versions(folder: Path) -> list[dict[str, object]]:
    """Return the versions that have a site, the newest first, for the chooser of the pages."""
    names = [path.parent.name for path in folder.glob(f"*/{POLICY_NAME}")]
    names.sort(key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)], reverse=True)
    return [{"version": name, "title": name, "aliases": []} for name in names]


def list_pages(heading: str) -> list[str]:
    """Return the pages under a heading of the navigation, by their paths in the site."""
    pages: list[str] = []
    for entry in NAVIGATION[heading]:
        folder = settings.BASE_DIR / "docs" / entry
        pages += sorted(f"{entry}{path.name}" for path in folder.glob("*.md")) or [entry]
    return list(dict.fromkeys(pages))


def _build_policy(pages: Iterable[Path]) -> str:
    """Return the content security policy of the pages: their inline parts are named by hash."""
    scripts, styles = set(), set()
    for page in pages:
        text = page.read_bytes()
        scripts |= {_hash(part) for part in _SCRIPT.findall(text)}
        styles |= {_hash(part) for part in _STYLE.findall(text)}
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(("script-src 'self'", *sorted(scripts))),
            " ".join(("style-src 'self'", *sorted(styles))),
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "worker-src 'self'",
            "form-action 'none'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


def _hash(part: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(part).digest()).decode()}'"
