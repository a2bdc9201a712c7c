"""Module and function names of the product are unique, and no word that the glossary replaced is left."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.sources import ROOT, find_public_functions, list_sources, read_code, read_source
from tests.test_names import PACKAGES

# Django's own file names, the word of a URL, and folders whose files are named after the subject that they serve.
DJANGO_FILES: Final = {
    "__init__", "__main__", "apps", "base", "data", "labels", "models", "tasks", "triggers", "urls",
    "settings_views", "views",
}  # fmt: skip
FOLDERS_BY_SUBJECT: Final = {
    "commands", "migrations", "openapi", "registry", "schemas", "serializers", "templatetags",
    "views",
}  # fmt: skip
SHARED_FUNCTIONS: Final = {"main"}
# Old word -> the glossary's. Only spellings that mean nothing else.
REPLACED: Final = {
    r"\bleave_(basis|ref|until|for|aside)\w*|\bNO_LEAVE\b|\bleave:": "permission",
    r"\"HELD\"|`HELD`|approvals/holds|\bhold\.(set|lifted)\b": "stop",
    r"/beats\b|\blease\.beat\b|\bbeat_at_us\b|\bBeatMinute\b": "heartbeat",
    r"\bbreach(es)?\b": "violation",
    r"\bnotices\b(?! within)|\bnotice_\w+": "notification",
    r"\bjudged(_by|_as)?\b|\bjudgements?\b": "policy outcome",
    r"\bwaker\b": "gate listener",
    r"\bchores?\b": "job",
    r"\bpulses?\b": "job heartbeat",
    r"\bFENCE_(WAIT|UNKNOWN)\b": "in-flight window",
    r"\bdenied_final\b|\bdeny_final\b": "deny session",
    r"\blapsed\b": "expired unused",
    r"`(natural|joint|keyed)`|class: (natural|joint|keyed)\b": "tool class",
    r"(?<![\w-])/audit/": "/search/",
    r"\brehears\w*": "dry run",
    r"\b(anew|lurking|noes|whoever)\b": "plain English",
    r"\bbook of record\b|\bthe house\b": "journal, installation",
}
SCANNED: Final = (*PACKAGES, "client", "evaluation", "templates", "static", "docs")
TEXTS: Final = {".py", ".html", ".md", ".js", ".css", ".yaml"}


@pytest.mark.once
def test_two_modules_with_one_name_are_about_one_thing() -> None:
    by_name = defaultdict(list)
    for file in list_sources(PACKAGES):
        relative = file.relative_to(ROOT)
        if file.stem not in DJANGO_FILES and not FOLDERS_BY_SUBJECT & set(relative.parts):
            by_name[file.stem].append(str(relative))
    # A package and the module of its subject, as approvals/gates/gates.py, have one name.
    assert {name: files for name, files in by_name.items() if len(files) > 1} == {}


@pytest.mark.once
def test_a_public_function_has_a_name_of_its_own() -> None:
    by_name = defaultdict(list)
    for file in list_sources(PACKAGES):
        if file.stem == "tasks":  # a job is named like what it runs
            continue
        for name in find_public_functions(read_code(file)):
            by_name[name].append(str(file.relative_to(ROOT)))
    shared = {name: files for name, files in by_name.items() if len(files) > 1}
    templatetags = {
        name: files
        for name, files in shared.items()
        if any("templatetags" in file for file in files)
    }
    assert {n: f for n, f in shared.items() if n not in templatetags}.keys() <= SHARED_FUNCTIONS


@cache
def read_texts() -> dict[Path, str]:
    """Return the texts of the product and its documents."""
    return {
        file: read_source(file)
        for folder in SCANNED
        for file in (ROOT / folder).rglob("*")
        if file.suffix in TEXTS and "build" not in file.parts and file.is_file()
    }


@pytest.mark.once
@pytest.mark.parametrize("pattern", REPLACED, ids=REPLACED.values())
def test_no_replaced_word_is_left(pattern: str) -> None:
    # Without `\b` a search begins at a letter instead of at every character.
    likely = re.compile(pattern.replace(r"\b", ""))
    uses = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for file, text in read_texts().items()
        if likely.search(text) and re.search(pattern, text)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert uses == [], f"The glossary says: {REPLACED[pattern]}."
