"""Pages of the reference that are made from code.

Each function returns Markdown. Source: the OpenAPI document, the parsers of the commands, the
docstrings of the Python client, which is read and not imported, the schema of policy files, and the
tables of variables and metrics.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from django.core.management import get_commands, load_command_class

from api.openapi.document import build_openapi_document
from approvals.policies.editor_schema import build_policies_schema
from config.variables import VARIABLES
from monitoring.metric_texts import METRICS

MADE_FROM_CODE: Final = "*This page is made from the code of this version.*"
_SUBCOMMAND: Final = re.compile(r"^    ([a-z][a-z-]*)\s", re.MULTILINE)
_METHODS: Final = ("get", "post", "put", "patch", "delete")
CLIENT_FOLDER: Final = settings.BASE_DIR / "client" / "gatebook_client"
_PRINT_HELP: Final = """
import sys
from gatebook_client.cli import main
sys.argv[0] = "gatebook"
for name in sys.argv[1:]:
    try:
        main([*filter(None, [name]), "--help"])
    except SystemExit as end:
        assert not end.code, name
    print(end="\\0")
"""


def build_endpoints_page() -> str:
    """Return every endpoint of the API with its parameters, fields and answers."""
    document = build_openapi_document()
    schemas = document["components"]["schemas"]
    parts = ["# Endpoints", MADE_FROM_CODE, "[The API by example](api.md) shows them at work."]
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                text = "\n\n".join(_describe_endpoint(method, path, methods[method], schemas))
                by_tag.setdefault(methods[method]["tags"][0], []).append(text)
    for tag in sorted(by_tag):
        parts += [f"## {tag.capitalize()}", *by_tag[tag]]
    return "\n\n".join(parts) + "\n"


def _describe_endpoint(
    method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]
) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield _escape(operation.get("summary", ""))
    if operation.get("description"):
        yield _escape(operation["description"])
    content = operation.get("requestBody", {}).get("content", {})
    shapes = [_follow(media.get("schema", {}), schemas) for media in content.values()]
    rows = [
        (item["name"], item["in"], item.get("required"), item.get("schema", {}))
        for item in operation.get("parameters", ())
    ] + [
        (name, "body", name in shape.get("required", ()), field)
        for shape in shapes
        for name, field in shape.get("properties", {}).items()
    ]
    if rows:
        yield _table(
            ("name", "in", "needed", "type"),
            [
                (f"`{name}`", place, "required" if needed else "optional", _name_type(schema))
                for name, place, needed, schema in rows
            ],
        )
    answers = [
        (code, _escape(answer["description"])) for code, answer in operation["responses"].items()
    ]
    yield _table(("answer", "meaning"), answers)


def _follow(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    return schema


def _name_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_name_type(choice) for choice in schema[word]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_name_type(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else kind


def build_manage_page() -> str:
    """Return the help of each command of `manage.py` that is Gatebook's own."""
    parts = ["# Commands of manage.py", MADE_FROM_CODE]
    for name, app in sorted(get_commands().items()):
        if app.startswith("django") or app.partition(".")[0] in {"csp", "axes", "whitenoise"}:
            continue
        parser = load_command_class(app, name).create_parser("manage.py", name)
        parts += [f"## {name}", _code(parser.format_help())]
    return "\n\n".join(parts) + "\n"


def build_gatebook_page() -> str:
    """Return the help of the command `gatebook` and of each of its subcommands."""
    (text,) = _run_help([""])
    parts = ["# The command gatebook", MADE_FROM_CODE, _code(text)]
    names = _SUBCOMMAND.findall(text)
    for name, subcommand_text in zip(names, _run_help(names), strict=True):
        parts += [f"## gatebook {name}", _code(subcommand_text)]
    return "\n\n".join(parts) + "\n"


def _run_help(names: list[str]) -> list[str]:
    """Return the help of each subcommand, all from one process."""
    output = subprocess.run(
        [sys.executable, "-c", _PRINT_HELP, *names],
        capture_output=True,
        text=True,
        check=True,
        cwd=settings.BASE_DIR,
        env={"PYTHONPATH": str(CLIENT_FOLDER.parent), "COLUMNS": "100"},
    ).stdout
    return output.split("\0")[:-1]


def build_client_page() -> str:
    """Return the public classes and functions of the Python client with their docstrings."""
    parts = [
        "# Python client: classes and functions",
        MADE_FROM_CODE,
        "[The Python client](client.md) explains how they work together.",
    ]
    for module, names in sorted(_read_public_names().items()):
        tree = ast.parse((CLIENT_FOLDER / f"{module}.py").read_text("utf-8"))
        for node in tree.body:
            if getattr(node, "name", "") in names:
                parts += _describe_definition(node, "##")
    return "\n\n".join(parts) + "\n"


def _read_public_names() -> dict[str, list[str]]:
    """Read the table of public names that the client's package has, by module."""
    tree = ast.parse((CLIENT_FOLDER / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NAMES":
            names: dict[str, list[str]] = ast.literal_eval(node.value)
            return names
    raise LookupError("gatebook_client/__init__.py has no table of public names")


def _describe_definition(node: ast.AST, heading: str) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield f"{heading} {node.name}"
        word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield _code(f"{word} {node.name}({ast.unparse(node.args)}){returns}", "python")
        yield _describe_docstring(node)
    elif isinstance(node, ast.ClassDef):
        yield f"{heading} {node.name}"
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield _code(f"class {node.name}({bases})" if bases else f"class {node.name}", "python")
        yield _describe_docstring(node)
        for member in node.body:
            if not getattr(member, "name", "_").startswith("_"):
                yield from _describe_definition(member, f"{heading}#")


def _describe_docstring(
    node: "ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef",
) -> str:
    return _escape(ast.get_docstring(node) or "")


def build_policy_file_page() -> str:
    """Return every key of a policy file with its values."""
    parts = [
        "# Keys of a policy file",
        MADE_FROM_CODE,
        "[Policies](policies.md) explains the rules and has examples.",
    ]
    return "\n\n".join((*parts, *_describe_keys(build_policies_schema(), ""))) + "\n"


def _describe_keys(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Describe the keys of an object, and then of the objects below it."""
    rows, below = [], []
    for name, value in schema["properties"].items():
        inner = value.get("items", value)
        if "properties" in inner:
            below.append((inner, f"{path}.{name}".strip(".")))
        needed = "required" if name in schema.get("required", ()) else "optional"
        meaning = _escape(value.get("description", ""))
        rows.append((f"`{name}`", needed, _name_type(value), _name_limits(value), meaning))
    yield f"## `{path}`" if path else "## The file"
    yield _table(("key", "needed", "type", "limits", "meaning"), rows)
    for inner, inner_path in below:
        yield from _describe_keys(inner, inner_path)


def _name_limits(schema: dict[str, Any]) -> str:
    choices = (schema, *schema.get("anyOf", ()))
    words = {
        "minimum": "at least {}",
        "maximum": "at most {}",
        "pattern": "`{}`",
        "maxLength": "at most {} characters",
        "maxItems": "at most {} items",
    }
    return ", ".join(
        text.format(choice[word])
        for choice in choices
        for word, text in words.items()
        if word in choice
    )


def build_settings_page() -> str:
    """Return every environment variable with its default."""
    parts = ["# Settings", MADE_FROM_CODE, "Gatebook reads these environment variables."]
    for heading, variables in VARIABLES.items():
        rows = [(f"`{each.name}`", each.default, each.meaning) for each in variables]
        parts += [f"## {heading}", _table(("variable", "default", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def build_metrics_page() -> str:
    """Return every metric with its help text."""
    parts = [
        "# Metrics",
        MADE_FROM_CODE,
        "`/metrics` shows these gauges. [How to monitor Gatebook]"
        "(../how-to/operating.md#health-readiness-and-logs) has rules for alerts.",
        _table(("metric", "meaning"), [(f"`{name}`", text) for name, text in METRICS.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in line)} |"
        for line in lines
    )


def _code(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _escape(text: str) -> str:
    """Keep what looks like HTML from becoming HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


# The builder of each page, by the page's path in the site.
MADE_PAGES: Final = {
    "reference/endpoints.md": build_endpoints_page,
    "reference/manage-commands.md": build_manage_page,
    "reference/gatebook-command.md": build_gatebook_page,
    "reference/python-client-api.md": build_client_page,
    "reference/policy-file.md": build_policy_file_page,
    "reference/settings.md": build_settings_page,
    "reference/metrics.md": build_metrics_page,
}
