"""Secret keys of the installation: created once by `setup`, never printed.

Two keys are in `<var>/keys/` (folder 0700, files 0600) unless the environment holds them:
`secret_key` signs people's sign-ins, `pepper` keys the hashes of agent tokens, the digests of
intents and the marks of redacted secrets. docs/how-to/operating.md describes what each loss costs.
A missing key is generated for this process only. config/installation.py decides whether it may be
stored, because the database may have been written with another key. The key that signs tree heads
(proofs/signing_keys.py) is beside them; only the job worker reads it.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path

from db.key_files import decode_key, store_key

__all__ = ["KEY_VARIABLES", "decode_key", "load_keys", "store_key"]

KEY_BYTES = 48
KEY_VARIABLES = {"secret_key": "GATEBOOK_SECRET_KEY", "pepper": "GATEBOOK_PEPPER"}


def load_keys(
    folder: Path, environment: Mapping[str, str]
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return all keys by name, and the random ones that are not configured or stored.

    Raises ValueError when a variable or a file holds no usable key.
    """
    loaded, new = {}, {}
    for name, variable in KEY_VARIABLES.items():
        path = folder / name
        if environment.get(variable):
            loaded[name] = decode_key(environment[variable], variable)
        elif path.exists():
            loaded[name] = decode_key(path.read_text(encoding="ascii"), str(path))
        else:
            loaded[name] = new[name] = secrets.token_bytes(KEY_BYTES)
    return loaded, new
