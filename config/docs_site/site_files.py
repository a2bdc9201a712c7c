"""Where the built site is, whether it is current, and the headers of its files."""

import fcntl
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from wsgiref.headers import Headers

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD_FOLDER: Final = ROOT / "build"
SITE_ROOT: Final = BUILD_FOLDER / "site"
DOCS_FOLDER: Final = SITE_ROOT / "docs"
POLICY_NAME: Final = "policy.txt"
# Files of the repository's own folder that are pages of the site too.
FROM_ROOT: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
# Code whose contents are a page of the site; a link to the code leads to the page.
FROM_CODE: Final = {
    "approvals/policies/editor_schema.py": "reference/policy-file.md",
    "config/variables.py": "reference/settings.md",
    "monitoring/metric_texts.py": "reference/metrics.md",
}
# What the site is made from: the documents, and the code of which the reference is made.
_SOURCES: Final = (
    "docs/**/*",
    "*.md",
    "api/**/*.py",
    "approvals/policies/*.py",
    "monitoring/metric_texts.py",
    "client/gatebook_client/**/*.py",
    "config/**/*",
    "*/management/commands/*.py",
)
LOCK: Final = BUILD_FOLDER / "docs.lock"


def read_build_time(site: Path) -> int:
    """Return when the build of a site began, in nanoseconds; 0 if there is no complete site."""
    file = site / POLICY_NAME
    return file.stat().st_mtime_ns if file.is_file() else 0


def is_site_current(site: Path) -> bool:
    """Return whether no source has changed since the build of the site began.

    A document that was deleted or renamed changes the time of its folder.
    """
    built = read_build_time(site)
    sources = (path for pattern in _SOURCES for path in ROOT.glob(pattern))
    files = (path for path in sources if path.suffix != ".pyc" and path.is_file())
    folders = (path for path in ROOT.glob("docs/**") if path.is_dir())
    return built > 0 and not any(
        path.stat().st_mtime_ns > built for path in itertools.chain(files, folders)
    )


@contextmanager
def lock_build() -> Iterator[None]:
    """Wait until no other process builds the site, and keep others from building it."""
    BUILD_FOLDER.mkdir(exist_ok=True)
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_being_built() -> bool:
    """Return whether a process builds the site now. The lock ends with its process."""
    if not LOCK.is_file():
        return False
    with LOCK.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def add_site_headers(headers: Headers, path: str, url: str) -> None:
    """Send the policy that the build computed with each file of its site."""
    if Path(path).is_relative_to(DOCS_FOLDER):
        version = Path(path).relative_to(DOCS_FOLDER).parts[0]
        file = DOCS_FOLDER / version / POLICY_NAME
        policy = file.read_text("utf-8") if file.is_file() else "default-src 'none'"
        headers["Content-Security-Policy"] = policy
