"""The calls that wait for review in the benchmark: mails, pushes, SQL, volumes and shell commands.

They vary as an agent's do: recipients, accounts and tables differ from call to call, pushes bring
patches and lists of commits, and claims speak about what the checks compare.
"""

from typing import Any, Final

from evaluation.bench.workload import Writer, make_text

TOOLS: Final = """
tools:
  bench.push: {class: idempotent, reversibility: compensable}
  git.push: {class: probeable, reversibility: compensable, telling: [remote, refspec]}
  mail.send: {class: opaque, reversibility: irreversible, telling: [to, subject]}
  sql.run:
    class: opaque
    reversibility: irreversible
    telling: [database, sql]
    fields: {ticket: ticket, database: database}
  volume.delete:
    class: idempotent
    reversibility: reversible
    telling: [volume, cluster]
    fields: {ticket: ticket, cluster: cluster}
    raises: [{path: delete_snapshots, eq: true, reversibility: irreversible}]
"""
RULES: Final = """
name: bench
rules:
  - {id: pushes, title: Every push, match: {tools: [bench.push, git.push]}, outcome: require}
  - id: data
    title: Mail, data and shells
    match: {tools: [mail.send, sql.run, volume.delete, bash]}
    outcome: require
    require:
      evidence: {ticket: "OPS-*", row_count: true, removed_commits: true}
      proof_on_warning: typed_name
  - {id: rest, title: The rest, match: {}, outcome: allow}
"""
_WORDS: Final = ("north", "harbour", "willow", "granite", "meadow", "cobalt", "juniper", "falcon")
_ENDINGS: Final = ("wind", "bank", "press", "labs", "trade", "foods", "media", "works")


def make_call(number: int) -> dict[str, Any]:
    """Return the fields of plan `number`: five kinds of calls in turn, the same in every run."""
    return _CALLS[number % len(_CALLS)](number)


def _make_company(number: int) -> str:
    """Return one of 64,000 domains; each recurs after 64,000 calls."""
    return f"{_WORDS[number % 8]}{_ENDINGS[number // 8 % 8]}{number // 64 % 1_000}.example"


def _send_mail(number: int) -> dict[str, Any]:
    return {
        "tool": "mail.send",
        "arguments": {
            "to": [f"kim.{number % 4_000}@{_make_company(number)}", "sales@northwind.example"],
            "subject": f"Order {number}: delivery moves to Thursday",
            "body": make_text(number, 900) + f"\nSee https://shop.example/orders/{number}.",
            "attachments": [{"name": f"invoice-{number}.pdf", "rows": number % 300}],
            "ticket": f"OPS-{number}",
        },
        "why": "The customer asked for a new date; no other data leaves the company.",
    }


def _push(number: int) -> dict[str, Any]:
    paths = [f"docs/guide/part-{number % 90 + n}.md" for n in range(7)]
    paths += [f"src/part_{number % 97}.py", "requirements.lock"][: 1 + number % 2]
    return {
        "tool": "git.push",
        "arguments": {
            "remote": "origin",
            "refspec": f"{'+' * (number % 7 == 0)}HEAD:refs/heads/main",
            "commits": [
                {"sha": f"{number * 8 + n:040x}", "title": make_text(number + n, 50)}
                for n in range(4)
            ],
            "patch": "".join(_write_diff(path, number + n) for n, path in enumerate(paths)),
        },
        "target": {"repository": f"acme/shop-{number % 20}", "ref": "refs/heads/main"},
        "preconditions": {"paths": paths},
        "why": "Docs only. All tests pass on main.",
    }


def _write_diff(path: str, number: int) -> str:
    old, new = make_text(number, 70), make_text(number + 1, 70)
    context = "".join(f" {make_text(number + n, 60)}\n" for n in range(6))
    return (
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
        f"@@ -{number % 400 + 1},8 +{number % 400 + 1},9 @@\n{context}-{old}\n-{new}\n"
        f"+{old} again\n+{new}, then wait\n+{make_text(number + 2, 80)}\n"
    )


def _run_sql(number: int) -> dict[str, Any]:
    database = "orders-prod" if number % 4 == 0 else "orders-staging"
    return {
        "tool": "sql.run",
        "arguments": {
            "database": f"postgres://app@db-{number % 40}.internal.example/{database}",
            "sql": f"UPDATE orders SET status = 'late', note = '{make_text(number, 200)}'\n"
            f"WHERE id IN ({', '.join(str(number * 10 + n) for n in range(20))});",
            "row_count": 20,
        },
        "target": {"environment": "staging", "resource": f"table/orders-{number % 500}"},
        "why": f"OPS-{number}: staging only, and the dry run showed 20 rows.",
    }


def _delete_volume(number: int) -> dict[str, Any]:
    return {
        "tool": "volume.delete",
        "arguments": {
            "volume": f"vol-{number:08x}",
            "account": f"{100_000_000_000 + number // 100 % 900}",
            "cluster": "prod-eu-1" if number % 125 == 3 else "staging-eu-2",
            "size_gib": 40 + number % 9,
            "owner": "team-search",
            "delete_snapshots": number % 125 == 8,
            "ticket": f"OPS-{number // 100}",
        },
        "target": {"resource": f"volume/{number}"},
        "why": "Unused volumes of the staging cluster.",
    }


def _run_command(number: int) -> dict[str, Any]:
    commands = (
        f"git checkout fix-{number % 50} && python -m pytest -q tests/test_{number % 97}.py",
        f"kubectl --context prod-eu-{number % 6} -n shop scale deploy/api-{number} --replicas=3",
        f"curl -fsS https://{_make_company(number)}/health | tee var/health-{number}.txt",
    )
    return {
        "tool": "bash",
        "arguments": {"command": commands[number // 5 % 3], "cwd": f"work/{number % 30}"},
        "why": f"Read only: look at OPS-{number} before the release.",
    }


_CALLS: Final = (_send_mail, _push, _run_sql, _delete_volume, _run_command)


class CallWriter(Writer):
    """Writes evidence whose plans are those calls, so that their names were used before."""

    def plan(self, effect: int) -> bytes:
        """Return the plan of call number `effect`."""
        fields = {"effect_key": f"call-{effect}", **make_call(effect)}
        return self._item("effect.planned", effect, fields, ("arguments", "note"))
