"""Where the built site is, and the headers of its files. WhiteNoise serves them."""

from functools import cache
from pathlib import Path
from typing import Final
from wsgiref.headers import Headers

SITE_ROOT: Final = Path(__file__).resolve().parents[2] / "build" / "site"
DOCS_FOLDER: Final = SITE_ROOT / "docs"
POLICY_NAME: Final = "policy.txt"
# Files of the repository's own folder that are pages of the site too.
FROM_ROOT: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}


def add_site_headers(headers: Headers, path: str, url: str) -> None:
    """Send the policy that `make docs` computed with each file of the site."""
    if Path(path).is_relative_to(DOCS_FOLDER):
        version = Path(path).relative_to(DOCS_FOLDER).parts[0]
        headers["Content-Security-Policy"] = _read_policy(version)


@cache
def _read_policy(version: str) -> str:
    file = DOCS_FOLDER / version / POLICY_NAME
    return file.read_text("utf-8") if file.is_file() else "default-src 'none'"
