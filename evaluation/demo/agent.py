"""A small agent that fixes a bug in a git repository, and reports to Gatebook around each step.

    GATEBOOK_TOKEN=gbk_… python -m evaluation.demo.agent --url http://127.0.0.1:8000

Where the policy requires approval, as evaluation/demo_policies.yaml does for a push to main, the
agent waits for the decision. After a denial it withdraws the push and ends. With `--killed` its
process dies in the middle of a push, and the next process finds out the outcome.

Nothing is simulated: files, tests, commits, pushes and rejections are real, in a temporary folder
that is removed at the end. `--keep FOLDER` works in a folder of yours and does not remove it.
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

from evaluation.demo.git_sandbox import FIXED_TARIFF, TEST, Workshop
from evaluation.demo.steps import Json, Worker, print_line

TOKEN_VARIABLE = "GATEBOOK_TOKEN"  # noqa: S105 - a name
BRANCH = "fix/reduced-fares"
BRANCH_REF = f"refs/heads/{BRANCH}"
TITLE = "Round reduced fares up to 5 cents"


class DemoAgent(Worker):
    """The complete job, part by part."""

    def work(self) -> None:
        """Do the job, or the rest of it. Raises GatebookError, OSError."""
        self.open(TITLE, branch=BRANCH)
        if self.session.resumed:
            self.recover()
        self.create_tasks()
        self.reproduce()
        self.fix()
        branch_push = self.publish()
        self.clean_up(branch_push)
        self.close()

    def create_tasks(self) -> None:
        """Create the tasks of the work."""
        self.task("job", "Fix the rounding of reduced fares", [])
        self.task("reproduce", "Show the bug by a test", ["write the test", "see it fail"])
        self.task("fix", "Fix the bug", ["tariff.py", "see the test pass"])
        pushes = ["push the branch", "push to main", "push to next"]
        self.task("publish", "Push the fix to main", ["commit", *pushes, "tag"])
        self.task("clean-up", "Clean up", ["remove the branch"])
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
        self.edit("write-test", "test_tariff.py", TEST, "A bug without a test comes back.")
        self.set_item("reproduce", "write the test")
        self.test("test-1", "It should fail: nothing is fixed yet.")
        self.set_item("reproduce", "see it fail")
        self.finish("reproduce")

    def fix(self) -> None:
        """Fix the code and see the test pass."""
        self.start("fix")
        self.edit(
            "fix-tariff",
            "tariff.py",
            FIXED_TARIFF,
            "Half a fare is rounded up before it is charged.",
        )
        self.set_item("fix", "tariff.py")
        self.test("test-2", "It should pass now.")
        self.set_item("fix", "see the test pass")
        # Exit code 1 means differences: the command ran, so it is acknowledged with outcome error.
        self.run(
            "compare", ["git", "diff", "--exit-code", "--stat"], "Which tracked files are changed?"
        )
        self.finish("fix")

    def publish(self) -> EffectResult:
        """Commit and push: main needs approval, next is rejected once. Returns the push of the branch."""
        self.start("publish")
        self.run(
            "branch",
            ["git", "checkout", "-q", "-B", BRANCH],
            "Work belongs on its own branch.",
        )
        self.commit(
            "commit", TITLE, ["tariff.py", "test_tariff.py"], "Test and fix belong together."
        )
        self.set_item("publish", "commit")
        branch_push = self.push("push-branch", BRANCH_REF, "So that others can read it.")
        self.set_item("publish", "push the branch")
        self.review()
        self.push("push-main", "refs/heads/main", "The ticket asks for it.")
        self.set_item("publish", "push to main")

        changelog = {"path": "CHANGELOG.md", "text": f"# Changes\n\n- {TITLE}\n"}
        intended = self.plan_only(
            "write-changelog", "file.edit", changelog, "There is no list of changes yet."
        )
        self.shop.push_as_colleague("next")
        self.push(
            "push-next", "refs/heads/next", "The coming release needs it too.", again=self.catch_up
        )
        self.set_item("publish", "push to next")
        self.withdraw(intended, "a colleague has written one")

        try:
            self.push("push-tag", "refs/tags/v1.0.1", "A release is named by its tag.")
            self.set_item("publish", "tag")
        except Rejected:
            self.set_item("publish", "tag", "failed")
        self.finish("publish")
        return branch_push

    def review(self) -> None:
        """Let a reviewer read the commit, in a child session."""
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
        """Fetch what others have pushed, rebase the fix onto it, and test again."""
        self.run(
            "fetch",
            ["git", "fetch", "-q", "origin"],
            "The remote has commits that the clone lacks.",
            "git.fetch",
        )
        self.run(
            "rebase",
            ["git", "rebase", "-q", "origin/next"],
            "The fix goes on top of them.",
            "git.rebase",
        )
        self.test("test-3", "What others changed may have broken it.")

    def clean_up(self, branch_push: EffectResult) -> None:
        """Delete the branch, which is merged into main."""
        self.start("clean-up")
        self.delete_branch(
            "delete-branch",
            BRANCH_REF,
            branch_push,
            "The fix is on main; the branch is no longer needed.",
        )
        self.set_item("clean-up", "remove the branch")
        self.finish("clean-up")
        self.finish("job")

    def plan_only(self, key: str, tool: str, arguments: Json, why: str) -> str:
        """Plan an effect without performing it; return its id."""
        described = self.describe(key, why)
        plan = {
            "session": self.session.id,
            "tool": tool,
            "arguments": arguments,
            "effect_key": described.pop("key"),
        }
        return str(self.session.send_command("/effects", plan | described).body["id"])

    def accept_refusal(self, refusal: PermissionRefused) -> None:
        """Withdraw the refused effect, cancel the open tasks and end the session."""
        self.withdraw(refusal.effect, str(refusal))
        for task in self.tasks.values():
            task.change(state="cancelled")
        self.close("cancelled")


def _announce_wait(url: str, waits_for: str, waiting: Json) -> None:
    """Print what the agent waits for, and where a person can decide."""
    if waits_for == "gate":
        page = f"{url}/approvals/{waiting['gate']['id']}/"
        about = f"{waiting['handle']:>7}  {waiting['state']:<12}  {waiting['effect_key']:<16}"
        print_line(f"{about}  approve it in the browser ({page}), and watch it continue")
    else:
        print_line(f"{waiting.get('detail')}; waiting until then")


def _exit_on_signal(_number: int, _frame: FrameType | None) -> None:
    """Turn SIGTERM into an exit that removes the temporary folder."""
    raise SystemExit(143)


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m evaluation.demo.agent", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--url", required=True, help="of a Gatebook, such as http://127.0.0.1:8000")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="work in this new folder and do not remove it"
    )
    parser.add_argument(
        "--patience", type=float, default=15.0, metavar="SECONDS", help="default: %(default)s"
    )
    parser.add_argument(
        "--killed",
        action="store_true",
        help="die by SIGKILL in the middle of the first push; a second process continues",
    )
    parser.add_argument(
        "--key", default="", help=argparse.SUPPRESS
    )  # of the session, for one of several processes
    parser.add_argument("--dies", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    # Other users of the machine can read arguments. The programs of the job do not need the token.
    options.token = os.environ.pop(TOKEN_VARIABLE, "")
    if not options.token:
        parser.error(
            f"Set {TOKEN_VARIABLE} to an agent's token; `manage.py issue_token` makes one."
        )
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the agent; return 0 if the work is done or was refused by people, else 1."""
    options = _parse_arguments(arguments)
    options.url = options.url.rstrip("/")
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        if options.key:
            return _work(options, Workshop(options.keep))
        with tempfile.TemporaryDirectory(
            prefix="gatebook-demo-", ignore_cleanup_errors=True
        ) as temporary:
            options.key = f"fares-{secrets.token_hex(6)}"
            shop = Workshop(options.keep.absolute() if options.keep else Path(temporary))
            shop.open()
            return _in_two_processes(options, shop) if options.killed else _work(options, shop)
    except FileNotFoundError as missing:
        return _fail(
            f"A program or folder is missing ({missing.filename}); this agent works with git."
        )
    except OSError as fault:
        return _fail(f"The work failed: {fault}")
    except KeyboardInterrupt:
        return _fail("Stopped; its open effects stay open in Gatebook.")


def _in_two_processes(options: argparse.Namespace, shop: Workshop) -> int:
    """Let a process be killed in the middle of a push, and the next one resume the session."""
    shared = [
        "--url",
        options.url,
        "--patience",
        str(options.patience),
        "--keep",
        str(shop.folder),
        "--key",
        options.key,
    ]
    environment = os.environ | {TOKEN_VARIABLE: options.token}
    command = [sys.executable, "-m", "evaluation.demo.agent", *shared]
    for more in (["--dies"], []):
        process = subprocess.Popen([*command, *more], env=environment)
        try:
            code = process.wait()
        finally:
            process.terminate()
            process.wait()
        if code != -signal.SIGKILL:
            return code
        print_line("a new process takes over; it waits until the old lease expires")
    return _fail("The agent was killed by another process.")


def _work(options: argparse.Namespace, shop: Workshop) -> int:
    client = Client(
        options.url,
        options.token,
        patience_s=options.patience,
        on_wait=partial(_announce_wait, options.url),
    )
    agent = DemoAgent(client, shop, options.key, dies=options.dies)
    try:
        agent.work()
    except PermissionRefused as refusal:
        agent.accept_refusal(refusal)
        print_line(
            f"ended without the refused effect; see {options.url}/sessions/{agent.session.id}/"
        )
        return 0
    except ServerUnavailable as away:
        return _fail(f"{away} Start it with `make run`, or give its address by --url.")
    except GatebookError as refusal:
        return _fail(f"Gatebook refused: {refusal}.")
    finally:
        if agent.opened is not None:
            agent.opened.close()
        client.close()
    print_line(f"done; see {options.url}/sessions/{agent.session.id}/")
    return 0


def _fail(sentence: str) -> int:
    sys.stderr.write(f"demo agent: {sentence}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
