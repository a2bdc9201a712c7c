"""The Python client as a wheel, built from `client/` so that `pip` installs it from Gatebook."""

import base64
import hashlib
import io
import tomllib
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from django.conf import settings

_SOURCE: Final = Path(settings.BASE_DIR) / "client"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel


class ClientWheel(NamedTuple):
    """A wheel: the file name that pip requires, and the content."""

    file_name: str
    content: bytes


@lru_cache(maxsize=1)
def build_client_wheel() -> ClientWheel:
    """Build the wheel of the Python client; its files are read once per process."""
    project = tomllib.loads((_SOURCE / "pyproject.toml").read_text())["project"]
    name = f"{project['name'].replace('-', '_')}-{project['version']}"
    files = {
        str(path.relative_to(_SOURCE)): path.read_bytes()
        for path in sorted((_SOURCE / "gatebook_client").rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    about = f"{name}.dist-info"
    files[f"{about}/METADATA"] = _format_metadata(project).encode()
    files[f"{about}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: gatebook\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    scripts = "".join(f"{command} = {target}\n" for command, target in project["scripts"].items())
    files[f"{about}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    record = [
        f"{path},sha256={_hash_file(content)},{len(content)}" for path, content in files.items()
    ]
    files[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return ClientWheel(f"{name}-py3-none-any.whl", buffer.getvalue())


def _format_metadata(project: dict[str, Any]) -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {requirement}" for requirement in project["dependencies"]),
    ]
    for extra, requirements in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {item}; extra == "{extra}"' for item in requirements]
    return "\n".join([*lines, ""])


def _hash_file(content: bytes) -> str:
    """Return the hash of a file as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
