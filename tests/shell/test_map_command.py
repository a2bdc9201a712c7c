"""What commands become: tool, effect, arguments, facts with their sources, parts in order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shell.command_effects import EFFECTS, UNPARSED
from shell.map_command import MAX_VALUE, MAX_VALUES, MappedCommand, map_command
from shell.mapping import load_default_mapping
from tests.shell.hostile_commands import HARMLESS, PUSHES, WORST

pytestmark = pytest.mark.once


def read(command: str, cwd: str = "/repo") -> MappedCommand:
    return map_command(command, mapping=load_default_mapping(), cwd=cwd)


CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("git push", "git.push", "changes", {}),
    ("git push -f origin main", "git.push", "destroys", {"force": True, "refs": ["main"]}),
    ("git push origin +a:b", "git.push", "destroys", {"force": True, "refspec": "+a:b"}),
    ("git push --forc origin main", "git.push", "destroys", {"force": True}),
    ("git push --force-with-lease=main:abc origin", "git.push", "destroys", {"remote": "origin"}),
    ("git push origin :old", "git.push", "destroys", {"delete": True}),
    ("git push -d origin old", "git.push", "destroys", {"delete": True}),
    ("git push --mirror", "git.push", "destroys", {"mirror": True}),
    ("git push --tags up", "git.push", "changes", {"tags": True, "remote": "up"}),
    ("git push -n origin main", "git.push", "reads", {"dry_run": True}),
    ("git push -n --no-dry-run origin main", "git.push", "changes", {}),
    ("git commit -am x", "git.commit", "local", {"messages": ["x"], "all": True}),
    ("git reset --hard HEAD~1", "git.reset", "local", {"hard": True, "commit": "HEAD~1"}),
    ("git clean -fdx", "git.clean", "local", {"force": True, "directories": True}),
    ("git branch -D x", "git.branch_delete", "local", {"names": ["x"]}),
    ("git branch", "git.read", "reads", {}),
    ("git remote set-url origin x", "git.remote_set_url", "local", {"remote": "origin"}),
    ("git tag -d v1", "git.tag", "local", {"delete": True}),
    ("git fetch origin", "git.fetch", "local", {"remote": "origin"}),
    ("gh pr merge 5 --squash -R a/b", "gh.pr_merge", "changes", {"pull_request": "5"}),
    ("gh release create v1 x.zip", "gh.release_create", "changes", {"tag": "v1"}),
    ("gh release delete v1 -y", "gh.release_delete", "destroys", {"tag": "v1"}),
    ("gh workflow run d.yml", "gh.workflow_run", "changes", {"workflow": "d.yml"}),
    ("gh api repos/a/b -X DELETE", "gh.api", "destroys", {"method": "DELETE"}),
    ("gh api repos/a/b/issues -f title=x", "gh.api", "changes", {"method": "POST"}),
    ("gh api repos/a/b", "gh.read", "reads", {"method": "GET"}),
    ("glab mr merge 7", "glab.mr_merge", "changes", {"merge_request": "7"}),
    ("kubectl delete pods a b -n x", "kubectl.delete", "destroys", {"names": ["a", "b"]}),
    ("kubectl apply -f x.yaml", "kubectl.apply", "changes", {"files": ["x.yaml"]}),
    ("kubectl apply --dry-run=server -f x", "kubectl.apply", "reads", {"dry_run": "server"}),
    ("kubectl apply --dry-run=none -f x", "kubectl.apply", "changes", {"dry_run": "none"}),
    ("kubectl scale deploy/web --replicas 0", "kubectl.scale", "changes", {"replicas": "0"}),
    ("kubectl rollout undo deploy/web", "kubectl.rollout", "changes", {"kind": "deploy"}),
    ("kubectl rollout status deploy/web", "kubectl.read", "reads", {"name": "web"}),
    ("kubectl exec web -- ls", "kubectl.read", "reads", {"resource": "web"}),
    ("kubectl exec web -- rm -r /x", "kubectl.exec", "changes", {"resource": "web"}),
    ("kubectl patch deploy web -p '{}'", "kubectl.change", "changes", {"patch": "{}"}),
    ("helm uninstall web", "helm.uninstall", "destroys", {"release": "web"}),
    ("helm upgrade -i web ./c", "helm.upgrade", "changes", {"chart": "./c"}),
    ("terraform apply -auto-approve", "terraform.apply", "changes", {"auto_approve": True}),
    ("terraform apply -destroy", "terraform.destroy", "destroys", {"destroy": True}),
    ("tofu destroy", "terraform.destroy", "destroys", {"program": "tofu"}),
    ("terraform plan -out x", "terraform.read", "reads", {"out": "x"}),
    ("terraform import a.b id", "terraform.state", "changes", {"address": "a.b"}),
    ("terraform state rm a.b", "terraform.state_rm", "destroys", {"words": ["a.b"]}),
    ("docker push r/w:1", "docker.push", "changes", {"image": "r/w:1"}),
    ("docker build --push .", "docker.push", "changes", {"path": "."}),
    ("docker build .", "docker.local", "local", {"words": ["."]}),
    ("docker -H ssh://h build .", "docker.local", "changes", {"host": "ssh://h"}),
    ("podman run --rm alpine ls -l", "docker.run", "local", {"image": "alpine"}),
    ("docker system prune -af", "docker.prune", "changes", {"all": True}),
    ("npm publish --tag next", "npm.publish", "changes", {"tag": "next"}),
    ("pnpm publish --dry-run", "npm.publish", "reads", {"program": "pnpm"}),
    ("yarn npm publish", "npm.publish", "changes", {"program": "yarn"}),
    ("npm ci", "packages.install", "local", {}),
    ("python -m twine upload dist/a", "twine.upload", "changes", {"files": ["dist/a"]}),
    ("cargo publish", "cargo.publish", "changes", {}),
    ("cargo test -p x", "shell.code", "local", {}),
    ("psql -h h -d d -c 'select 1'", "sql.read", "reads", {"reads_only": True}),
    ("psql -h h d -c 'select f(1)'", "sql.run", "changes", {"reads_only": False}),
    ("psql -c 'with x as (delete from t returning 1) select 1'", "sql.run", "changes", {}),
    ("psql -f x.sql", "sql.run", "changes", {"file": "x.sql"}),
    ("psql <<< 'drop table t'", "sql.run", "changes", {"sql": "drop table t\n"}),
    ("psql postgres://u:p@h/d -c 'delete from t'", "sql.run", "changes", {"host": "h"}),
    ("mysql -h h -psecret d -e 'show tables'", "sql.read", "reads", {"database": "d"}),
    ("sqlite3 x.db .tables", "sql.read", "reads", {"database": "x.db"}),
    ("sqlite3 x.db '.shell git push'", "sql.run", "runs", {"reads_only": False}),
    ("redis-cli -h r get x", "redis.read", "reads", {"host": "r"}),
    ("redis-cli FLUSHALL", "redis.run", "destroys", {"statement": "FLUSHALL"}),
    ("mongosh m --eval 'db.x.find({})'", "mongo.read", "reads", {"reads_only": True}),
    ("mongosh m --eval 'db.x.drop()'", "mongo.run", "changes", {"reads_only": False}),
    ("curl https://a.example/x", "http.read", "reads", {"method": "GET", "host": "a.example"}),
    ("curl -d a=1 https://a.example", "http.request", "changes", {"method": "POST", "data": True}),
    ("curl -XDELETE https://a.example", "http.request", "destroys", {"method": "DELETE"}),
    ("curl -G -d a=1 https://a.example", "http.read", "reads", {"method": "GET"}),
    ("curl -T f https://a.example", "http.request", "changes", {"method": "PUT"}),
    ("curl -K conf", "http.request", "changes", {"config": "conf"}),
    ("curl -o f https://a.example", "http.read", "local", {"output": "f"}),
    ("wget https://a.example/f", "http.read", "local", {"host": "a.example"}),
    ("http POST a.example x=1", "http.request", "changes", {"method": "POST"}),
    ("aws s3 ls", "aws.read", "reads", {"service": "s3", "action": "ls"}),
    ("aws s3 rm s3://b --recursive", "aws.run", "destroys", {"action": "rm"}),
    ("aws ec2 run-instances", "aws.run", "changes", {"action": "run-instances"}),
    ("aws secretsmanager get-secret-value", "aws.run", "changes", {"service": "secretsmanager"}),
    ("gcloud compute instances list", "gcloud.read", "reads", {"service": "compute instances"}),
    ("gcloud run deploy web", "gcloud.run", "changes", {"action": "deploy"}),
    ("az vm delete -n x", "az.run", "destroys", {"name": "x"}),
    ("ssh u@h ls", "ssh.read", "reads", {"host": "h", "user": "u"}),
    ("ssh h rm x", "ssh.run", "changes", {"host": "h"}),
    ("scp a h:/b", "ssh.copy", "changes", {"direction": "to host"}),
    ("scp h:/b a", "ssh.copy", "local", {"direction": "from host"}),
    ("rsync -a --delete a/ h:b", "ssh.copy", "destroys", {"delete": True}),
    ("rsync -a a/ b/", "ssh.copy", "local", {"direction": "local"}),
    ("systemctl restart web", "systemctl.change", "changes", {"unit": "web"}),
    ("systemctl status web", "systemctl.read", "reads", {"unit": "web"}),
    ("rm -rf /x", "shell.delete", "local", {"recursive": True, "paths": ["/x"]}),
    ("find . -delete", "shell.delete", "local", {"delete": True}),
    ("sed -i s/a/b/ x", "shell.edit", "local", {"files": ["x"]}),
    ("sed s/a/b/ x", "shell.read", "reads", {"script": "s/a/b/"}),
    ("echo x > y", "shell.edit", "local", {"paths": ["y"]}),
    ("pytest -q", "shell.code", "local", {"program": "pytest"}),
    ("make test", "shell.code", "local", {"targets": ["test"]}),
    ("deployctl now", "shell.run", "runs", {"program": "deployctl", "words": ["now"]}),
    ("./x.sh a", "shell.run", "runs", {"program": "x.sh", "path": "./x.sh"}),
    ("ls -l", "shell.read", "reads", {"program": "ls"}),
]


@pytest.mark.parametrize(("command", "tool", "effect", "arguments"), CASES)
def test_a_command_is_a_call_of_a_tool(
    command: str, tool: str, effect: str, arguments: dict[str, Any]
) -> None:
    mapped = read(command)
    assert (mapped.tool, mapped.effect) == (tool, effect), mapped.parts
    assert mapped.arguments.items() >= {"command": command, **arguments}.items()


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        ("git push origin main", {"remote": "origin", "ref": "main"}),
        ("git push --delete origin a b", {"ref": "--delete a b"}),
        ("git push --tags", {"ref": "--tags"}),
        ("git push https://u:t@h.example/a/b.git x", {"repository": "https://h.example/a/b.git"}),
        ("git push git@h.example:a/b x", {"repository": "git@h.example:a/b"}),
        ("git -C sub push", {"directory": "/repo/sub"}),
        ("cd ../other && git push", {"directory": "/other"}),
        ("cd /a; (cd b; git -C c push)", {"directory": "/a/b/c"}),
        ("cd $X && git push", {"directory": ""}),
        ("GIT_DIR=/x/.git git push", {"directory": "/x"}),
        ("gh pr merge 5 -R a/b", {"repository": "a/b", "resource": "pull request 5"}),
        ("GH_REPO=a/b gh pr merge 5", {"repository": "a/b"}),
        ("gh api -X PUT repos/a/b/pulls/1/merge", {"repository": "a/b"}),
        (
            "kubectl --context=prod delete deploy/web -n shop",
            {"environment": "prod", "resource": "shop/deploy/web"},
        ),
        ("helm uninstall web --kube-context prod", {"environment": "prod", "resource": "web"}),
        ("psql -h db.example shop -c 'drop table x'", {"environment": "db.example"}),
        ("aws --profile prod ec2 run-instances", {"environment": "prod"}),
        ("terraform destroy && git push origin main", {"ref": "main"}),
    ],
)
def test_facts_of_the_command_are_facts_of_the_target(command: str, facts: dict[str, str]) -> None:
    target = read(command).target
    assert {fact: target[fact]["value"] for fact in facts} == facts
    assert all(value["source"].startswith("command: ") for value in target.values())


def test_a_push_from_the_working_folder_names_no_folder() -> None:
    assert read("git push").target == {}
    assert read("cd /repo && git push").target == {}


def test_an_unknown_value_is_an_object_that_equals_no_text() -> None:
    arguments = read('git push origin "$BRANCH"').arguments
    assert arguments["refs"] == {"unknown": ["$BRANCH"]}
    assert arguments["force"] == {"unknown": ["$BRANCH"]}  # it can be --force
    assert read('git push origin "$BRANCH"').target["ref"]["value"] == "*"
    assert read("git push $WHERE").target["ref"]["value"] == "*"
    assert read("git push origin " + "b" * 300).target["ref"]["value"] == "*"
    assert "force" not in read('git push origin "feature/$BRANCH"').arguments


def test_the_gravest_part_names_the_tool_and_all_parts_are_shown() -> None:
    mapped = read("git fetch && git push origin main && kubectl delete ns x | tee log")
    assert mapped.tool == "kubectl.delete"
    assert [part["tool"] for part in mapped.arguments["parts"]] == [
        "git.fetch",
        "git.push",
        "kubectl.delete",
        "shell.edit",
    ]
    assert mapped.arguments["compound"] is True
    assert mapped.arguments["tools"] == ["git.fetch", "git.push", "kubectl.delete", "shell.edit"]
    assert read("git push && ls").arguments["compound"] is False
    assert "parts" not in read("git push").arguments


def test_what_nobody_knows_is_graver_than_what_is_known() -> None:
    assert read("kubectl delete ns x; ./prepare").tool == "shell.run"
    assert read("./prepare; $X").tool == "shell.unparsed"
    assert not read("./prepare; $X").parsed


def test_passwords_of_urls_are_not_repeated() -> None:
    for command in ("git push https://u:hunter2@h/a main", "psql postgres://u:hunter2@h/d -c x"):
        mapped = read(command)
        del mapped.arguments["command"]
        assert "hunter2" not in repr((mapped.arguments, mapped.target))


@pytest.mark.parametrize("size", [70_000, 1_000_000])
def test_a_command_that_is_too_long_is_not_parsed(size: int) -> None:
    mapped = read("echo " + "a" * size)
    assert (mapped.tool, mapped.arguments["reason"]) == (
        "shell.unparsed",
        "it is longer than 65536 characters",
    )


@pytest.mark.parametrize(
    "command",
    [
        "(" * 30_000,
        "$(" * 20_000,
        "{ " * 20_000 + "ls" + " ;}" * 20_000,
        "a" + "{1,2}" * 40,
        "bash -c '" * 3_000,
        "ls;" * 20_000,
        "for i in 1 2 3 4 5 6 7 8; do " * 8 + "ls" + "; done" * 8,
        "f() { f; f; }; f",
        "a() { b; b; }; b() { c; c; }; c() { a; a; }; a",
        "x=" + "$x" * 10_000 + "; $x",
        "'" * 60_001,
        "echo " + "\\\n" * 30_000,
        "eval " * 9_000 + "ls",
        "sudo " * 10_000 + "git push",
        "env -S '" * 2_000,
    ],
)
def test_commands_made_to_exhaust_the_parser_end(command: str) -> None:
    assert read(command).effect in EFFECTS


_ANY_TEXT = st.text(max_size=200)
_FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *(
                "git push",
                "git ",
                "push",
                "ls",
                "'",
                '"',
                "`",
                "$(",
                ")",
                "\\",
                "\n",
                ";",
                "&&",
                "|",
            ),
            *("<<EOF\n", "\nEOF\n", "#", "{", "}", ",", "$x", "x=push", "eval ", "bash -c ", " "),
            *("if ", "then ", "fi", "for i in a;", "do ", "done", "\0", "\ud800", "\r", "é", "*"),
        ]
    ),
    max_size=25,
).map("".join)


@given(st.one_of(_ANY_TEXT, _FRAGMENTS))
def test_no_text_raises_and_every_result_is_complete(command: str) -> None:
    mapped = read(command)
    assert mapped.parts
    assert mapped.effect in EFFECTS
    assert mapped.arguments["command"] == command
    assert mapped.parsed == all(part.effect != UNPARSED for part in mapped.parts)
    assert mapped.tool in {part.tool for part in mapped.parts}


@given(st.sampled_from([*PUSHES, *WORST, *HARMLESS]), _FRAGMENTS)
def test_more_text_after_a_push_does_not_hide_it(command: str, more: str) -> None:
    assert read(f"git push\n{command}\n{more}").changes_outside


def test_a_value_that_is_no_text_is_not_parsed() -> None:
    assert map_command(["git", "push"], mapping=load_default_mapping()).tool == "shell.unparsed"  # type: ignore[arg-type]  # a client may send it


def test_what_is_too_long_to_be_listed_is_unknown() -> None:
    sql = "select 1; " * 500 + "drop table orders"
    mapped = map_command(f"psql -c '{sql}'", mapping=load_default_mapping())
    assert mapped.arguments["sql"] == {"unknown": sql[:MAX_VALUE] + "…"}
    refs = [f"branch-{number}" for number in range(MAX_VALUES + 1)]
    mapped = map_command(f"git push origin {' '.join(refs)}", mapping=load_default_mapping())
    assert mapped.arguments["refs"] == {"unknown": refs[:-1]}
    assert mapped.arguments["command"].endswith(refs[-1])
