"""What the git repository around a folder says about itself, read from its files.

Standard library only and without starting git, because a hook runs at every tool call. Where the
files do not suffice (includes, rewritten addresses, reftables), git is asked, for at most a second.
The repository belongs to the agent, so these are facts with a source, never proofs.
"""

import os

MAX_REMOTES = 20
MAX_FILE_BYTES = 1_000_000
GIT_TIMEOUT_S = 1.0
_FILES, _GIT = "git files", "git"
# Of a config file: only git itself knows what these make of the other lines.
_NEEDS_GIT = ("[include", "insteadof", "refstorage", "worktreeconfig")


def read_git_facts(folder: str) -> dict[str, object]:
    """Return repository, branch, head, remotes and source, or {} outside a repository.

    `repository` is the path of the remote that the branch is pushed to, such as `acme/tariffs`.
    Passwords in addresses are left out.
    """
    try:
        git_folder = find_git_folder(folder)
        if not git_folder:
            return {}
        common = _find_common_folder(git_folder)
        config = _read_text(f"{common}/config")
        if any(word in config.lower() for word in _NEEDS_GIT):
            return _ask_git(folder)
        head = _read_text(f"{git_folder}/HEAD").strip()
        sections = parse_git_config(config)
    except (OSError, ValueError):
        return {}
    branch = ""
    if head.startswith("ref: "):
        ref = head[5:].strip()
        branch = ref.removeprefix("refs/heads/")
        head = _read_ref(common, git_folder, ref)
    remotes = {
        name: hide_password((values.get("pushurl") or values["url"])[0])
        for (kind, name), values in sections.items()
        if kind == "remote" and (values.get("pushurl") or values.get("url"))
    }
    return _build_facts(branch, head, remotes, _choose_remote(sections, branch, remotes), _FILES)


def _build_facts(
    branch: str, head: str, remotes: dict[str, str], pushed_to: str, source: str
) -> dict[str, object]:
    named = dict(sorted(remotes.items())[:MAX_REMOTES])
    return {
        "repository": shorten_address(remotes.get(pushed_to, "")),
        "branch": branch,
        "head": head,
        "remotes": named,
        "source": source,
    }


def find_git_folder(folder: str) -> str:
    """Return the .git folder of a working tree, or "" outside one."""
    current = os.path.abspath(folder)  # noqa: PTH100
    while True:
        candidate = f"{current}/.git"
        if os.path.isdir(candidate):  # noqa: PTH112
            return candidate
        if os.path.isfile(candidate):  # noqa: PTH113
            # A linked working tree or a submodule.
            text = _read_text(candidate).strip()
            if not text.startswith("gitdir: "):
                return ""
            return os.path.normpath(os.path.join(current, text[8:]))  # noqa: PTH118
        parent = os.path.dirname(current)  # noqa: PTH120
        if parent == current:
            return ""
        current = parent


def _find_common_folder(git_folder: str) -> str:
    try:
        common = _read_text(f"{git_folder}/commondir").strip()
    except FileNotFoundError:
        return git_folder
    return os.path.normpath(os.path.join(git_folder, common))  # noqa: PTH118


def _read_text(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read(MAX_FILE_BYTES).decode("utf-8", "replace")


def _read_ref(common: str, git_folder: str, ref: str) -> str:
    """Return the commit of a ref, or "" before the first commit."""
    if ".." in ref or not ref.startswith("refs/"):
        return ""
    for folder in (git_folder, common):
        try:
            return _read_text(f"{folder}/{ref}").strip()
        except OSError:
            continue
    try:
        packed = _read_text(f"{common}/packed-refs")
    except OSError:
        return ""
    for line in packed.splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return ""


def parse_git_config(text: str) -> dict[tuple[str, str], dict[str, list[str]]]:
    """Return the values of a git config file by section and name. Names are in lower case."""
    sections: dict[tuple[str, str], dict[str, list[str]]] = {}
    values: dict[str, list[str]] = {}
    for raw in text.replace("\\\n", "").splitlines():
        line = raw.strip()
        if line.startswith("["):
            header, _, rest = line[1:].partition("]")
            kind, _, name = header.partition(" ")
            name = name.strip()
            if name.startswith('"') and name.endswith('"') and len(name) > 1:
                name = name[1:-1].replace('\\"', '"').replace("\\\\", "\\")
            values = sections.setdefault((kind.strip().lower(), name), {})
            line = rest.strip()
        if not line or line[0] in "#;":
            continue
        name, separator, value = line.partition("=")
        values.setdefault(name.strip().lower(), []).append(
            _strip_config_value(value) if separator else "true"
        )
    return sections


def _strip_config_value(value: str) -> str:
    """Remove quotes and comments from a value of a git config file."""
    kept, quoted, escaped = [], False, False
    for character in value.strip():
        if escaped:
            kept.append({"n": "\n", "t": "\t", "b": "\b"}.get(character, character))
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character in "#;" and not quoted:
            break
        else:
            kept.append(character)
    return "".join(kept).strip()


def _choose_remote(
    sections: dict[tuple[str, str], dict[str, list[str]]], branch: str, remotes: dict[str, str]
) -> str:
    """Return the remote that a push of the branch goes to, as git decides it."""
    of_branch = sections.get(("branch", branch), {})
    of_all = sections.get(("remote", ""), {})
    candidates = (
        *of_branch.get("pushremote", [])[-1:],
        *of_all.get("pushdefault", [])[-1:],
        *of_branch.get("remote", [])[-1:],
    )
    for name in candidates:
        if name in remotes:
            return name
    return "origin" if "origin" in remotes or len(remotes) != 1 else next(iter(remotes))


def hide_password(address: str) -> str:
    """Return an address of a remote without the user and password that it may contain."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if scheme in ("ssh", "git+ssh") and ":" not in user:
        return address
    return f"{scheme}://{host if at else authority}{slash}{path.partition('?')[0]}"


def shorten_address(address: str) -> str:
    """Return `owner/name` of a remote's address: its path without `.git`."""
    if "://" in address:
        scheme, _, rest = address.partition("://")
        path = rest if scheme == "file" else rest.partition("/")[2]
    elif ":" in address and "/" not in address.partition(":")[0]:
        path = address.partition(":")[2]  # git@host:owner/name.git
    else:
        path = address  # a folder
    return path.strip("/").removesuffix(".git").removesuffix("/")


def _ask_git(folder: str) -> dict[str, object]:
    """Return the facts that git prints. Configuration that would start programs is not used."""
    import subprocess  # loaded only where the files do not suffice
    import time

    until = time.monotonic() + GIT_TIMEOUT_S

    def run(*words: str) -> str:
        try:
            completed = subprocess.run(
                ["git", "-C", folder, "-c", "core.fsmonitor=false", *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(until - time.monotonic(), 0.01),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        text = completed.stdout.decode("utf-8", "replace")
        return text if completed.returncode == 0 else ""

    branch = run("symbolic-ref", "--quiet", "--short", "HEAD").strip()
    head = run("rev-parse", "--verify", "--quiet", "HEAD").strip()
    remotes: dict[str, str] = {}
    for line in run("remote", "-v").splitlines():
        name, _, rest = line.partition("\t")
        if rest.endswith("(push)"):
            remotes.setdefault(name, hide_password(rest.removesuffix("(push)").strip()))
    pushed_to = run("rev-parse", "--abbrev-ref", "--quiet", "@{push}").strip().partition("/")[0]
    if pushed_to not in remotes:
        pushed_to = "origin" if "origin" in remotes or len(remotes) != 1 else next(iter(remotes))
    if not (branch or head or remotes):
        return {}
    return _build_facts(branch, head, remotes, pushed_to, _GIT)
