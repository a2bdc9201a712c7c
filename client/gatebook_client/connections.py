"""Connections that `gatebook connect` stores: one file each, with an address and a token.

Standard library only, for hooks. The files are in `$XDG_CONFIG_HOME/gatebook/connections`, or below
`~/.config`. Only their owner may read them.
"""

import json
import os

DEFAULT_NAME = "default"
NAME_ENV_NAME = "GATEBOOK_CONNECTION"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789-_."


class ConnectionMissing(ValueError):
    """No address or token was given, and no connection is stored under the name."""


def get_config_folder() -> str:
    """Return the folder of the stored connections."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    return f"{base}/gatebook/connections"


def get_state_folder() -> str:
    """Return the folder of what is kept between two runs."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    return f"{base}/gatebook"


def check_connection_name(name: str) -> str:
    """Return a name that can be a file name. Raises ValueError."""
    if not name or len(name) > 64 or name[0] == "." or any(c not in _ALPHABET for c in name):
        raise ValueError(
            f"{name!r} is not the name of a connection. Use up to 64 of a-z, 0-9, -, _ and dot."
        )
    return name


def load_connection(name: str = "", *, url: str = "", token: str = "") -> tuple[str, str]:
    """Return address and token.

    Arguments come first, then the named connection; without a name, GATEBOOK_URL and
    GATEBOOK_TOKEN, then the default connection. An address and a token of different sources are
    never combined with a stored one. Raises ConnectionMissing, ValueError.
    """
    name = name or os.environ.get(NAME_ENV_NAME, "")
    if not name:
        url = url or os.environ.get("GATEBOOK_URL", "")
        token = token or os.environ.get("GATEBOOK_TOKEN", "")
    if url and token:
        return url, token
    stored_url, stored_token = _read_connection(check_connection_name(name or DEFAULT_NAME))
    if url and url.rstrip("/") != stored_url.rstrip("/"):
        raise ConnectionMissing(
            f"No token for {url} is given. Set GATEBOOK_TOKEN, or run `gatebook connect`."
        )
    if not stored_url or not stored_token:
        raise ConnectionMissing(
            "No connection to Gatebook is set up. Run `gatebook connect`, or set GATEBOOK_URL and"
            " GATEBOOK_TOKEN."
        )
    return stored_url, token or stored_token


def _read_connection(name: str) -> tuple[str, str]:
    try:
        with open(f"{get_config_folder()}/{name}.json", encoding="utf-8") as file:  # noqa: PTH123
            stored = json.load(file)
    except FileNotFoundError:
        return "", ""
    except (OSError, ValueError) as error:
        raise ConnectionMissing(f"The connection {name} cannot be read: {error}.") from error
    if not isinstance(stored, dict):
        return "", ""
    return str(stored.get("url") or ""), str(stored.get("token") or "")


def store_connection(name: str, url: str, token: str) -> str:
    """Store a connection, readable by its owner only, and return the path of its file."""
    folder = get_config_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    path = f"{folder}/{check_connection_name(name)}.json"
    write_private_file(path, json.dumps({"url": url, "token": token}, indent=2).encode() + b"\n")
    return path


def write_private_file(path: str, content: bytes) -> None:
    """Replace a file as a whole by one that only its owner may read."""
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)  # noqa: PTH105
