"""What a changed file may endanger, by its path."""

import pytest

from approvals.diff.path_classes import CLASSES, RULES, classify_path

PATHS = {
    "production": [
        "deploy/production/values.yaml",
        "docs/../deploy/production/values.yaml",
        "deploy/produc\u200btion/values.yaml",
        "DEPLOY\\Prod\\Values.yaml",
        "helm/api/values-prod.yaml",
        "config/environments/production.rb",
        "app/settings/production.py",
        "src/main/resources/application-prod.yml",
        "env/prod.tfvars",
        "live/eu/terragrunt.hcl",
    ],
    "secret": [
        ".env",
        ".env.production",
        "prod.env",
        "keys/server.pem",
        "home/.ssh/id_rsa",
        "config/credentials.yml",
        "secrets/api.yaml",
        "vault.json",
        "k8s/app-secrets.yaml",
    ],
    "ci": [
        ".github/workflows/release.yml",
        ".gitlab-ci.yml",
        "Jenkinsfile",
        ".circleci/config.yml",
    ],
    "release": ["Dockerfile", "docker/api.Dockerfile", "Makefile", "scripts/release.sh"],
    "permission": [
        "CODEOWNERS",
        "docs/CODEOWNERS",
        "README.md → etc/sudoers",
        "etc/sudoers.d/app",
        "infra/iam-policy.json",
        "root/.ssh/authorized_keys",
        "policies/main.rego",
    ],
    "hook": [".husky/pre-commit", ".pre-commit-config.yaml", ".claude/settings.json", ".mcp.json"],
    "lock": ["uv.lock", "package-lock.json", "web/yarn.lock", "go.sum", "Cargo.lock"],
    "manifest": ["package.json", "requirements.txt", "docs/requirements.txt", "go.mod", "pom.xml"],
    "deployment": ["k8s/api.yaml", "infra/main.tf", "charts/api/templates/service.yaml"],
    "migration": ["app/migrations/0002_more.py", "db/migrate/20260101_add.rb"],
    "binary": ["lib/helper.so", "bin/tool.exe", "data/model.onnx"],
    "generated": ["static/app.min.js", "api/service_pb2.py", "vendor/lib/a.go"],
    "configuration": ["mkdocs.yml", ".env.example", "src/tokens.json", ".eslintrc", "docs/x.yaml"],
    "source": [
        "src/a.py",
        "src/production/planner.py",
        "src/live/view.py",
        "src/secrets.py",
        "lib/vault/client.go",
        "src/policy.py",
        "app/management/commands/setup.py",
        "docs/conf.py",
        "src/reproduction.py",
        "",
        "one file",
    ],
    "test": ["tests/test_x.py", "tests/fixtures/prod.yaml", "pkg/a_test.go", "src/a.spec.ts"],
    "docs": ["docs/rounding.md", "docs/img/flow.svg", "LICENSE", "deploy/production/README.md"],
}


@pytest.mark.parametrize(("name", "path"), [(name, path) for name in PATHS for path in PATHS[name]])
def test_a_path_belongs_to_the_class_of_what_it_may_endanger(name: str, path: str) -> None:
    assert classify_path(path).name == name


def test_classes_and_rules_have_the_same_names() -> None:
    by_headings = {"mode", "symlink", "submodule", "source"}  # no path says these
    assert {name for name, _ in RULES} | by_headings == {listed.name for listed in CLASSES}
    assert [listed.rank for listed in CLASSES] == list(range(len(CLASSES)))


def test_long_hostile_paths_are_classified_at_once() -> None:
    for part in ("prod/", "docs/", "a.prod-", "policies/x.", " → "):
        assert classify_path(part * 800 + "x").word
