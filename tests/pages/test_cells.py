"""Cells without content have no whitespace either: narrow tables hide the label of `td:empty`."""

import re
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
ATTRIBUTES = r"(?:[^>{]|{%.*?%}|{{.*?}})*"
CELL = re.compile(rf"<td\b({ATTRIBUTES})>(.*?)</td>", re.DOTALL)
LABEL = re.compile(r'\bdata-label="[^"]')
TEXT_AREA = re.compile(rf"<textarea\b{ATTRIBUTES}>([^<]*)</textarea>")
BRANCH = r"{% (?:elif|else|empty)\b[^%]*%}"
BLOCK = re.compile(
    r"{% (if|for|with)\b[^%]*%}((?:(?!{% (?:if|for|with)\b).)*?){% end\1 %}", re.DOTALL
)


def shrink_block(block: re.Match[str]) -> str:
    """Return the text of a block, or nothing when it may render nothing."""
    kind, content = block.groups()
    branches = re.split(BRANCH, content)
    has_other = kind == "with" or bool(re.search(r"{% (?:else|empty) %}", content))
    return "x" if has_other and all(branch.strip() for branch in branches) else ""


def list_blank_cells(template: str) -> list[str]:
    """Return the cells of a template that can render only whitespace."""
    blank = []
    for cell in filter(lambda cell: LABEL.search(cell[1]), CELL.finditer(template)):
        content, count = cell[2], 1
        while count:
            content, count = BLOCK.subn(shrink_block, content)
        if content and content.isspace():
            blank.append(cell[0])
    return blank


def test_blank_cells_are_recognized() -> None:
    cell = '<td data-label="Task">{}</td>'
    for content, is_blank in {
        "\n{% if a %}x{% endif %}\n": True,
        "\n{% if a %}x{% elif b %}y{% endif %}\n": True,
        "\n{% with a=b %}{% for c in a %}{{ c }}{% endfor %}{% endwith %}\n": True,
        "\n{% if a %}x{% else %}y{% endif %}\n": False,
        "\n{% for c in a %}{{ c }}{% empty %}—{% endfor %}\n": False,
        "{% if a %}\nx\n{% endif %}": False,
        "\n{{ a }}\n": False,
    }.items():
        assert bool(list_blank_cells(cell.format(content))) is is_blank, content


def test_templates_leave_no_whitespace_in_blank_cells_and_text_areas() -> None:
    for path in TEMPLATES.rglob("*.html"):
        template = path.read_text(encoding="utf-8")
        assert list_blank_cells(template) == [], path
        for content in TEXT_AREA.findall(template):
            assert content.removeprefix("\n") == content.strip(), path
