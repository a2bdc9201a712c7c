"""Hooks of MkDocs: pages made from code, and links that leave docs/."""

import re
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from config.docs_site.made_pages import MADE_PAGES
from config.docs_site.site_files import FROM_CODE, FROM_ROOT

_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def add_pages(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made from code, and those of the repository's own folder."""
    for path, build_page in MADE_PAGES.items():
        files.append(File.generated(config, path, content=build_page()))
    for source, path in FROM_ROOT.items():
        text = (settings.BASE_DIR / source).read_text("utf-8")
        files.append(File.generated(config, path, content=_move_links(text)))
    return files


def replace_links(markdown: str, *, page: Page, **_: Any) -> str:
    """Replace links to files outside docs/ by the path of the file: the site is read offline."""
    folder = Path(settings.BASE_DIR, "docs", page.file.src_uri).parent
    inside = (settings.BASE_DIR / "docs").resolve()

    def replace(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if ":" in target:
            return link[0]
        path = (folder / target).resolve()
        if path.is_relative_to(inside) and not path.is_dir():
            return link[0]
        name = path.relative_to(settings.BASE_DIR.resolve()).as_posix()
        if page_path := FROM_ROOT.get(name) or FROM_CODE.get(name):
            up = "../" * (len(Path(page.file.src_uri).parts) - 1)
            return f"[{text}]({up}{page_path}{anchor})"
        return text if name in text else f"{text} (`{name}`)"

    return _LINK.sub(replace, markdown)


def _move_links(text: str) -> str:
    """Make links of a file in the repository's own folder relative to docs/."""

    def replace(link: re.Match[str]) -> str:
        target, anchor = link[2], link[3] or ""
        if ":" in target:
            return link[0]
        if target in FROM_ROOT:
            return f"[{link[1]}]({FROM_ROOT[target]}{anchor})"
        moved = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
        return f"[{link[1]}]({moved}{anchor})"

    return _LINK.sub(replace, text)


# The names of MkDocs' events.
on_files = add_pages
on_page_markdown = replace_links
