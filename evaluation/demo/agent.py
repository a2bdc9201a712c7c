"""A small agent at real work: it mends a fault in a git repository and tells Gatebook before and
after each step.

    python -m evaluation.demo.agent --url http://127.0.0.1:8000 --token gbk_…

Where the policy asks for people, as evaluation/demo_policies.yaml does for a push to main, it stops
until they have answered; after a no it withdraws the push and ends. With `--killed` its process
dies in the middle of a push, and the next one finds out by itself what became of it.

Nothing here is played: the files, the tests, the commits, the pushes and their rejections happen in
a temporary folder, which is removed at the end (`--keep FOLDER` works in a folder of yours and
leaves it).
"""

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import FrameType

from gatebook_client import (
    Client,
    EffectResult,
    GatebookError,
    PermissionRefused,
    Rejected,
    Result,
    ServerUnavailable,
)

from evaluation.demo.git_sandbox import MENDED_TARIFF, TEST, Workshop
from evaluation.demo.steps import Json, Worker, say

BRANCH = "fix/reduced-fares"
BRANCH_REF = f"refs/heads/{BRANCH}"
TITLE = "Round reduced fares up to 5 cents"


class DemoAgent(Worker):
    """The whole job, part by part."""

    def work(self) -> None:
        """Do the whole job, or what is left of it. Raises GatebookError, OSError."""
        self.open(TITLE, branch=BRANCH)
        if self.session.resumed:
            self.recover()
        self.intend()
        self.reproduce()
        self.mend()
        branch_push = self.publish()
        self.tidy(branch_push)
        self.close()

    def intend(self) -> None:
        """Say what the work consists of."""
        self.task("job", "Mend the rounding of reduced fares", [])
        self.task("reproduce", "Show the fault by a test", ["write the test", "see it fail"])
        self.task("mend", "Mend the fault", ["tariff.py", "see the test pass"])
        pushes = ["push the branch", "push to main", "push to next"]
        self.task("publish", "Bring the repair to main", ["commit", *pushes, "tag"])
        self.task("tidy", "Leave nothing behind", ["remove the branch"])
        self.start("job")

    def reproduce(self) -> None:
        """Read the code, write a test, and see it fail."""
        self.start("reproduce")
        self.effect(
            "read-tariff",
            "file.read",
            {"path": "tariff.py"},
            lambda _key: Result("ok", result={"text": self.shop.read("tariff.py")}),
            why="To see how reduced fares are computed.",
        )
        self.edit("write-test", "test_tariff.py", TEST, "A fault without a test comes back.")
        self.set_item("reproduce", "write the test")
        self.test("test-1", "It should fail: nothing is mended yet.")
        self.set_item("reproduce", "see it fail")
        self.finish("reproduce")

    def mend(self) -> None:
        """Mend the code and see the test pass."""
        self.start("mend")
        self.edit(
            "mend-tariff",
            "tariff.py",
            MENDED_TARIFF,
            "Half a fare is rounded up before it is charged.",
        )
        self.set_item("mend", "tariff.py")
        self.test("test-2", "It should pass now.")
        self.set_item("mend", "see the test pass")
        # It ends with 1 because there are differences: it did happen, so it is acknowledged, with
        # outcome error.
        self.run(
            "compare", ["git", "diff", "--exit-code", "--stat"], "Which tracked files are changed?"
        )
        self.finish("mend")

    def publish(self) -> EffectResult:
        """Commit and push; ask before main, be overtaken on the way to next. Returns the push of
        the branch."""
        self.start("publish")
        self.run(
            "branch",
            ["git", "checkout", "-q", "-B", BRANCH],
            "Work belongs on a branch of its own.",
        )
        self.commit(
            "commit", TITLE, ["tariff.py", "test_tariff.py"], "Test and repair belong together."
        )
        self.set_item("publish", "commit")
        branch_push = self.push("push-branch", BRANCH_REF, "So that others can read it.")
        self.set_item("publish", "push the branch")
        self.review()
        self.push("push-main", "refs/heads/main", "The ticket asks for it.")
        self.set_item("publish", "push to main")

        changelog = {"path": "CHANGELOG.md", "text": f"# Changes\n\n- {TITLE}\n"}
        intended = self.intend_only(
            "write-changelog", "file.edit", changelog, "There is no list of changes yet."
        )
        self.shop.colleague_pushes("next")
        self.push(
            "push-next", "refs/heads/next", "The coming release needs it too.", again=self.catch_up
        )
        self.set_item("publish", "push to next")
        self.withdraw(intended, "a colleague wrote one meanwhile")

        try:
            self.push("push-tag", "refs/tags/v1.0.1", "A release is named by its tag.")
            self.set_item("publish", "tag")
        except Rejected:
            self.set_item("publish", "tag", "failed")
        self.finish("publish")
        return branch_push

    def review(self) -> None:
        """Let another pair of eyes read the commit: a session of its own below this one."""
        reviewer = Worker(self.client, self.shop, f"{self.key}-review")
        reviewer.open(f"Read the commit: {TITLE}", parent=self.session.id)
        reviewer.run(
            "read-commit",
            ["git", "show", "--stat", "HEAD"],
            "Is it only what the ticket asks for?",
            "git.show",
        )
        reviewer.close()

    def catch_up(self) -> None:
        """Fetch what others have pushed, put the repair on top of it, and test again."""
        self.run(
            "fetch",
            ["git", "fetch", "-q", "origin"],
            "The remote has commits that are not here.",
            "git.fetch",
        )
        self.run(
            "rebase",
            ["git", "rebase", "-q", "origin/next"],
            "The repair goes on top of them.",
            "git.rebase",
        )
        self.test("test-3", "What others changed may have broken it.")

    def tidy(self, branch_push: EffectResult) -> None:
        """Take back the branch that is on main now."""
        self.start("tidy")
        self.delete_branch(
            "delete-branch",
            BRANCH_REF,
            branch_push,
            "The repair is on main; the branch is of no use.",
        )
        self.set_item("tidy", "remove the branch")
        self.finish("tidy")
        self.finish("job")

    def intend_only(self, key: str, tool: str, arguments: Json, why: str) -> str:
        """Write down an intention that is not acted upon yet; return the effect's id."""
        described = self.describe(key, why)
        plan = {
            "session": self.session.id,
            "tool": tool,
            "arguments": arguments,
            "effect_key": described.pop("key"),
        }
        return str(self.session.send_command("/effects", plan | described).body["id"])

    def obey(self, refusal: PermissionRefused) -> None:
        """Take a no as a no: withdraw what was not let through, give the rest up and end the
        session."""
        self.withdraw(refusal.effect, str(refusal))
        for task in self.tasks.values():
            task.change(state="cancelled")
        self.close("cancelled")


def _wait(url: str, waits_for: str, told: Json) -> None:
    """Say what the agent waits for, and where a person can end that."""
    if waits_for == "gate":
        page = f"{url}/approvals/{told['gate']['id']}/"
        about = f"{told['handle']:>7}  {told['state']:<12}  {told['effect_key']:<16}"
        say(f"{about}  approve it in the browser ({page}), and watch it continue")
    else:
        say(f"{told.get('detail')}; waiting until that is over")


def _permission(_number: int, _frame: FrameType | None) -> None:
    """Turn SIGTERM into an exit that removes the temporary folder."""
    raise SystemExit(143)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m evaluation.demo.agent", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--url", required=True, help="of a Gatebook, such as http://127.0.0.1:8000")
    parser.add_argument(
        "--token", required=True, help="of an agent; `manage.py issue_token` makes one"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="work in this new folder and leave it"
    )
    parser.add_argument(
        "--patience", type=float, default=15.0, metavar="SECONDS", help="default: %(default)s"
    )
    parser.add_argument(
        "--killed",
        action="store_true",
        help="die by SIGKILL in the middle of the first push; a next process goes on",
    )
    parser.add_argument(
        "--key", default="", help=argparse.SUPPRESS
    )  # of the session, for a process of several
    parser.add_argument("--falls", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the agent once; 0 when the work is done, or was refused by people, else 1 with a sentence
    on stderr."""
    asked = _arguments(arguments)
    asked.url = asked.url.rstrip("/")
    signal.signal(signal.SIGTERM, _permission)
    try:
        if asked.key:
            return _work(asked, Workshop(asked.keep))
        with tempfile.TemporaryDirectory(
            prefix="gatebook-demo-", ignore_cleanup_errors=True
        ) as temporary:
            asked.key = f"fares-{secrets.token_hex(6)}"
            shop = Workshop(asked.keep.absolute() if asked.keep else Path(temporary))
            shop.open()
            return _in_two_processes(asked, shop) if asked.killed else _work(asked, shop)
    except FileNotFoundError as missing:
        return _stop(
            f"A program or folder is missing ({missing.filename}); this agent works with git."
        )
    except OSError as fault:
        return _stop(f"The work itself failed: {fault}")
    except KeyboardInterrupt:
        return _stop("Stopped; what it was doing stays open in Gatebook.")


def _in_two_processes(asked: argparse.Namespace, shop: Workshop) -> int:
    """Let one process be killed in the middle of a push, and the next take up the same session."""
    given = [
        "--url",
        asked.url,
        "--patience",
        str(asked.patience),
        "--keep",
        str(shop.folder),
        "--key",
        asked.key,
    ]
    # The token goes where other users of the machine cannot read it.
    environment = os.environ | {"GATEBOOK_TOKEN": asked.token}
    words = [sys.executable, "-m", "evaluation.demo.agent", *given, "--token", ""]
    for more in (["--falls"], []):
        process = subprocess.Popen([*words, *more], env=environment)
        try:
            code = process.wait()
        finally:
            process.terminate()
            process.wait()
        if code != -signal.SIGKILL:
            return code
        say("a new process takes over; it waits until the lease of the dead one has run out")
    return _stop("It was killed, and not by itself.")


def _work(asked: argparse.Namespace, shop: Workshop) -> int:
    client = Client(
        asked.url, asked.token, patience_s=asked.patience, on_wait=partial(_wait, asked.url)
    )
    agent = DemoAgent(client, shop, asked.key, falls=asked.falls)
    try:
        agent.work()
    except PermissionRefused as refusal:
        agent.obey(refusal)
        say(f"ended without it, as it was told; see {asked.url}/sessions/{agent.session.id}/")
        return 0
    except ServerUnavailable as away:
        return _stop(f"{away} Start it with `make run`, or give its address by --url.")
    except GatebookError as refusal:
        return _stop(f"Gatebook refused: {refusal}.")
    finally:
        if agent.opened is not None:
            agent.opened.close()
        client.close()
    say(f"done; see {asked.url}/sessions/{agent.session.id}/")
    return 0


def _stop(sentence: str) -> int:
    sys.stderr.write(f"demo agent: {sentence}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
