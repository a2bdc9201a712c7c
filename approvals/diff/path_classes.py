"""Class of a changed file by its path: what it may endanger. Pure.

The order of files on a page follows CLASSES, the most dangerous first. The table RULES says which
paths belong to which class; the first pattern that matches decides. A path that no pattern matches
is source.
"""

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from journal.text_caches import cache_texts

DANGEROUS, PLAIN, HARMLESS = "dangerous", "plain", "harmless"


@dataclass(frozen=True, slots=True)
class PathClass:
    """A class of files; `word` stands beside the path, `level` decides how it is shown."""

    name: str
    word: str
    level: str = DANGEROUS

    @property
    def rank(self) -> int:
        """Position in the order of files, 0 for the most dangerous."""
        return _RANKS[self.name]

    @property
    def is_dangerous(self) -> bool:
        """True if the file is always listed and open."""
        return self.level == DANGEROUS

    @property
    def is_harmless(self) -> bool:
        """True if the file may be folded into one line with others."""
        return self.level == HARMLESS


# From the most dangerous.
CLASSES: Final = (
    PathClass("production", "production values"),
    PathClass("secret", "secret or key"),
    PathClass("ci", "CI workflow"),
    PathClass("release", "build or release"),
    PathClass("permission", "permissions or owners"),
    PathClass("mode", "file mode"),
    PathClass("deployment", "deployment"),
    PathClass("hook", "runs by itself"),
    PathClass("lock", "lock file"),
    PathClass("manifest", "dependencies"),
    PathClass("migration", "migration"),
    PathClass("binary", "binary"),
    PathClass("symlink", "symbolic link"),
    PathClass("submodule", "submodule"),
    PathClass("generated", "generated", PLAIN),
    PathClass("configuration", "configuration", PLAIN),
    PathClass("source", "source", PLAIN),
    PathClass("test", "tests", HARMLESS),
    PathClass("docs", "docs", HARMLESS),
)
CLASS_BY_NAME: Final = {listed.name: listed for listed in CLASSES}
_RANKS: Final = {listed.name: rank for rank, listed in enumerate(CLASSES)}

_CONFIG: Final = (
    r"\.(?:ya?ml|json5?|jsonc|toml|ini|cfg|conf|config|properties|xml|hcl|tf|tfvars|env|tpl|j2"
    r"|tmpl|jsonnet|libsonnet|cue|plist)"
)
_CODE: Final = r"\.(?:py|js|cjs|mjs|ts|rb|php|ex|exs|cs|go|rs|java|kt|pl|sh)"
_PROD: Final = r"(?:prod|production|prd|live)"
_DEPLOY: Final = (
    r"(?:deploy|deploys|deployments?|k8s|kubernetes|kustomize|helm|charts?|argocd|flux|terraform"
    r"|tofu|infra|infrastructure|ansible|pulumi|cloudformation|nomad)"
)
_NAME_START, _NAME_END = r"(?:[^/]*[-_.])?", r"(?:[-_.][^/]*)?"  # other words of a file's name

# Class -> patterns of a path in lower case, below any folders; "…" stands for folders between. The
# first line that matches decides.
RULES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("configuration", (r"\.env[^/]*\.(?:example|sample|template|dist)",)),
    (
        "secret",
        (
            r"\.env(?:\.[^/]+)?|[^/]+\.env|\.envrc",
            r"[^/]+\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk|gpg|pgp|age)",
            r"id_(?:rsa|dsa|ecdsa|ed25519)|\.netrc|\.pgpass|\.htpasswd|\.pypirc",
            rf"{_NAME_START}(?:secrets?|credentials?|vault)(?:[-_][^/.]*)?(?:{_CONFIG}|\.txt)?",
            rf"(?:secrets|credentials|vault)/…[^/.]+(?:{_CONFIG}|\.txt)?",
            r"\.(?:ssh/(?!config$|authorized_keys$)|gnupg/|aws/|kube/)[^/]+",
        ),
    ),
    (
        "ci",
        (
            r"\.(?:github/(?:workflows|actions)|gitea/workflows|gitlab/ci)/…[^/]+",
            r"\.(?:circleci|buildkite|woodpecker)/…[^/]+|\.(?:travis|drone)\.yml",
            r"\.gitlab-ci[^/]*|jenkinsfile[^/]*|azure-pipelines[^/]*|bitbucket-pipelines\.yml",
            r"cloudbuild[^/]*|buildspec[^/]*|appveyor\.yml",
        ),
    ),
    (
        "release",
        (
            r"(?:[^/]+\.)?(?:dockerfile|containerfile)(?:\.[^/]+)?",
            r"(?:gnu)?makefile|[^/]+\.mk|justfile|procfile|rakefile|fastfile",
            r"(?:scripts?|bin|ci|tools)/(?:[^/]*[-_])?(?:release|publish|deploy)[^/]*",
            r"\.?goreleaser\.ya?ml|\.releaserc[^/]*|release-please[^/]*",
        ),
    ),
    (
        "permission",
        (
            r"codeowners|owners|owners_aliases|sudoers|authorized_keys|passwd|shadow",
            r"(?:sudoers|pam)\.d/[^/]+|\.ssh/config|\.github/settings\.yml",
            rf"{_NAME_START}(?:iam|rbac|acls?|polic(?:y|ies)|permissions?){_NAME_END}{_CONFIG}",
            rf"{_NAME_START}role-?bindings?{_NAME_END}{_CONFIG}",
            rf"(?:iam|rbac|acl|policies)/…[^/]+{_CONFIG}|[^/]+\.(?:rego|cedar)",
        ),
    ),
    (
        "hook",
        (
            r"\.(?:husky|githooks|git/hooks)/…[^/]+|cron\.[a-z]+/[^/]+|crontab",
            r"\.pre-commit-config\.yaml|lefthook\.ya?ml|\.gitmodules|\.gitattributes",
            r"sitecustomize\.py|[^/]+\.pth|\.(?:bashrc|bash_profile|profile|zshrc|npmrc)",
            r"\.vscode/(?:tasks|settings)\.json|\.(?:claude|cursor|codex)/…[^/]+(?<!\.md)",
            r"\.mcp\.json",
        ),
    ),
    # Documents and tests come before names that mislead in their folders.
    (
        "docs",
        (
            r"[^/]+\.(?:md|markdown|rst|adoc|asciidoc)",
            r"(?:readme|changelog|changes|licen[sc]e|copying|notice|authors)(?:\.txt)?",
            r"docs?/…(?!requirements|constraints)[^/]+\.(?:txt|svg|png|jpe?g|gif|webp|ico|pdf)",
            r"docs?/…[^/]+\.(?:html?|css|drawio|puml|mmd|dot)",
        ),
    ),
    (
        "test",
        (
            r"(?:tests?|__tests__|specs?|testdata|fixtures|e2e|__snapshots__|__mocks__)/…[^/]+",
            r"(?:test_[^/]+|[^/]+_test|conftest)\.[a-z]+|[^/]+[._-](?:test|spec)s?\.[a-z]+",
        ),
    ),
    (
        "production",
        (
            rf"{_PROD}/…(?:[^/.]+|[^/]+(?:{_CONFIG}|\.sh|\.sql))",
            rf"{_NAME_START}{_PROD}{_NAME_END}{_CONFIG}(?:\.[a-z0-9]+)?",
            rf"(?:configs?|settings|environments?)/…{_NAME_START}{_PROD}{_NAME_END}{_CODE}",
            rf"(?:settings|config)[-_.]{_PROD}{_CODE}",
        ),
    ),
    (
        "lock",
        (
            r"package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|bun\.lockb|go\.sum",
            r"gradle\.lockfile|packages\.lock\.json|package\.resolved|\.terraform\.lock\.hcl",
            r"[^/]+\.lock",
        ),
    ),
    (
        "manifest",
        (
            r"package\.json|pyproject\.toml|setup\.cfg|(?<!commands/)setup\.py|pipfile|go\.(?:mod|work)",
            r"cargo\.toml|pom\.xml|build\.gradle(?:\.kts)?|gemfile|[^/]+\.(?:gemspec|csproj)",
            r"(?:[^/]*requirements[^/]*|constraints[^/]*)\.(?:txt|in)",
            r"requirements/[^/]+\.(?:txt|in)|composer\.json|environment\.ya?ml|mix\.exs",
            r"pubspec\.yaml|podfile|deno\.json|vcpkg\.json|conanfile\.[a-z]+",
        ),
    ),
    (
        "deployment",
        (
            rf"{_DEPLOY}/…[^/]+(?:{_CONFIG}|\.sh)|[^/]+\.(?:tf|tfvars|tfstate)(?:\.[a-z]+)?",
            r"(?:values[^/]*|chart|kustomization|compose|docker-compose[^/]*)\.ya?ml",
            r"serverless\.ya?ml|vercel\.json|netlify\.toml|fly\.toml|nginx[^/]*\.conf",
            r"[^/]+\.(?:service|timer|socket)",
        ),
    ),
    (
        "migration",
        (r"(?:migrations?|migrate|alembic/versions)/…[^/]+\.(?:py|sql|rb|js|ts|php|exs|go)",),
    ),
    (
        "binary",
        (
            r"[^/]+\.(?:exe|dll|so|dylib|a|o|jar|war|class|pyc|wasm|bin|whl|apk|ipa|dmg|iso)",
            r"[^/]+\.(?:deb|rpm|zip|tar|t?gz|bz2|xz|7z|zst|sqlite3?|db|pkl|pickle|onnx|parquet)",
        ),
    ),
    (
        "generated",
        (
            r"(?:node_modules|vendor|third_party|dist|generated|__generated__)/…[^/]+",
            r"[^/]+(?:\.min\.(?:js|css)|\.map|_pb2(?:_grpc)?\.pyi?|\.pb\.go|\.gen\.[a-z]+)",
        ),
    ),
    ("configuration", (rf"[^/]+{_CONFIG}|\.[a-z]+(?:rc|ignore)|\.editorconfig",)),
)
_COMPILED: Final = tuple(
    (
        re.compile(f"(?:.*/)?(?:{'|'.join(patterns)})".replace("…", "(?:.*/)?")),
        CLASS_BY_NAME[name],
    )
    for name, patterns in RULES
)
_SOURCE: Final = CLASS_BY_NAME["source"]


def classify_path(path: str) -> PathClass:
    """Return the class of a path; of a move "old → new", the more dangerous of both."""
    return min(map(_classify_name, path.split(" → ")), key=lambda listed: listed.rank)


@cache_texts(4096)
def _classify_name(path: str) -> PathClass:
    name = _normalize_path(path)
    return next((listed for pattern, listed in _COMPILED if pattern.fullmatch(name)), _SOURCE)


def _normalize_path(path: str) -> str:
    """Return the path in lower case without what hides it: "..", blanks, invisible letters."""
    if not path.isascii():
        path = "".join(
            sign
            for sign in unicodedata.normalize("NFKC", path)
            if unicodedata.category(sign) not in ("Cf", "Cc")
        )
    path = posixpath.normpath(path.strip().replace("\\", "/").casefold())
    return path.lstrip("/")
