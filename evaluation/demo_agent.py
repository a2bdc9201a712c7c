"""A small agent at real work: it mends a fault in a git repository and tells Gatebook before and after each step.

    python -m evaluation.demo_agent --url http://127.0.0.1:8000 --token gbk_…

Where the policy asks for people, as evaluation/demo_policies.yaml does for a push to main, it stops until they have
answered; after a no it withdraws the push and ends.

Nothing here is played: the files, the tests, the commits, the pushes and their rejections happen in a temporary folder,
which is removed at the end (`--keep FOLDER` works in a folder of yours and leaves it).
"""

import argparse
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import FrameType

from evaluation.reporter import AwayError, Json, NoLeaveError, Outcome, RefusedError, Reporter
from evaluation.steps import Worker, say, tell
from evaluation.workshop import MENDED_TARIFF, TEST, Workshop

BRANCH = "fix/reduced-fares"
BRANCH_REF = f"refs/heads/{BRANCH}"
TITLE = "Round reduced fares up to 5 cents"


class DemoAgent(Worker):
    """The whole job, part by part."""

    def work(self) -> None:
        """Do the whole job. Raises AwayError, RefusedError, OSError."""
        self.open(TITLE, branch=BRANCH)
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
            lambda _key: Outcome("ok", result={"text": self.shop.read("tariff.py")}),
            why="To see how reduced fares are computed.",
        )
        self.edit("write-test", "test_tariff.py", TEST, "A fault without a test comes back.")
        self.item("reproduce", "write the test")
        self.test("test-1", "It should fail: nothing is mended yet.")
        self.item("reproduce", "see it fail")
        self.finish("reproduce")

    def mend(self) -> None:
        """Mend the code and see the test pass."""
        self.start("mend")
        self.edit("mend-tariff", "tariff.py", MENDED_TARIFF, "Half a fare is rounded up before it is charged.")
        self.item("mend", "tariff.py")
        self.test("test-2", "It should pass now.")
        self.item("mend", "see the test pass")
        # It ends with 1 because there are differences: it did happen, so it is acknowledged, with outcome error.
        self.run("compare", ["git", "diff", "--exit-code", "--stat"], "Which tracked files are changed?")
        self.finish("mend")

    def publish(self) -> Json:
        """Commit and push; ask before main, be overtaken on the way to next. Returns the push of the branch."""
        self.start("publish")
        self.run("branch", ["git", "checkout", "-q", "-B", BRANCH], "Work belongs on a branch of its own.")
        self.commit("commit", TITLE, ["tariff.py", "test_tariff.py"], "Test and repair belong together.")
        self.item("publish", "commit")
        branch_push = self.push("push-branch", BRANCH_REF, "So that others can read it.")
        self.item("publish", "push the branch")
        self.review()
        self.push("push-main", "refs/heads/main", "The ticket asks for it.")
        self.item("publish", "push to main")

        changelog = {"path": "CHANGELOG.md", "text": f"# Changes\n\n- {TITLE}\n"}
        intended = self.reporter.plan(
            self.session, self.describe("write-changelog", "file.edit", changelog, "There is no list of changes yet.")
        )
        self.shop.colleague_pushes("next")
        self.push("push-next", "refs/heads/next", "The coming release needs it too.", again=self.catch_up)
        self.item("publish", "push to next")
        self.withdraw(intended["id"], "a colleague wrote one meanwhile")

        tagged = self.push("push-tag", "refs/tags/v1.0.1", "A release is named by its tag.")
        self.item("publish", "tag", "failed" if tagged["state"] == "failed" else "done")
        self.finish("publish")
        return branch_push

    def review(self) -> None:
        """Let another pair of eyes read the commit: a session of its own below this one."""
        reviewer = Worker(self.reporter, self.shop)
        reviewer.open(f"Read the commit: {TITLE}", parent=self.session)
        reviewer.run(
            "read-commit", ["git", "show", "--stat", "HEAD"], "Is it only what the ticket asks for?", "git.show"
        )
        reviewer.close()

    def catch_up(self) -> None:
        """Fetch what others have pushed, put the repair on top of it, and test again."""
        self.run("fetch", ["git", "fetch", "-q", "origin"], "The remote has commits that are not here.", "git.fetch")
        self.run("rebase", ["git", "rebase", "-q", "origin/next"], "The repair goes on top of them.", "git.rebase")
        self.test("test-3", "What others changed may have broken it.")

    def tidy(self, branch_push: Json) -> None:
        """Take back the branch that is on main now."""
        self.start("tidy")
        self.delete_branch("delete-branch", BRANCH_REF, branch_push, "The repair is on main; the branch is of no use.")
        self.item("tidy", "remove the branch")
        self.finish("tidy")
        self.finish("job")

    def obey(self, refusal: NoLeaveError) -> None:
        """Take a no as a no: withdraw what was not let through, give the rest up and end the session."""
        self.withdraw(refusal.effect, str(refusal))
        for task in self.tasks.values():
            self.reporter.command(f"/tasks/{task}/change", {"state": "cancelled"})
        self.close("cancelled")


def _wait(url: str, waits_for: str, answer: Json) -> None:
    """Say what the agent waits for, and where a person can end that."""
    if waits_for == "gate":
        page = f"{url}/approvals/{answer['gate']['id']}/"
        tell(answer, f"approve it in the browser ({page}), and watch it continue")
    else:
        say(f"{answer['detail']}; waiting until it is lifted")


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Turn SIGTERM into an exit that removes the temporary folder."""
    raise SystemExit(143)


def main(arguments: list[str] | None = None) -> int:
    """Run the agent once; 0 when the work is done, or was refused by people, else 1 with a sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m evaluation.demo_agent", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--url", required=True, help="of a Gatebook, such as http://127.0.0.1:8000")
    parser.add_argument("--token", required=True, help="of an agent; `manage.py issue_token` makes one")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work in this new folder and leave it")
    parser.add_argument("--patience", type=float, default=15.0, metavar="SECONDS", help="default: %(default)s")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    url = asked.url.rstrip("/")
    reporter = Reporter(url, asked.token, asked.patience, waiting=partial(_wait, url))
    try:
        with tempfile.TemporaryDirectory(prefix="gatebook-demo-", ignore_cleanup_errors=True) as temporary:
            shop = Workshop(asked.keep.absolute() if asked.keep else Path(temporary))
            shop.open()
            agent = DemoAgent(reporter, shop)
            try:
                agent.work()
            except NoLeaveError as refusal:
                agent.obey(refusal)
                say(f"ended without it, as it was told; see {url}/sessions/{agent.session}/")
                return 0
    except AwayError as away:
        return _stop(f"{away} Start it with `make run`, or give its address by --url.")
    except RefusedError as refusal:
        return _stop(f"Gatebook refused: {refusal}.")
    except FileNotFoundError as missing:
        return _stop(f"A program or folder is missing ({missing.filename}); this agent works with git.")
    except OSError as fault:
        return _stop(f"The work itself failed: {fault}")
    except KeyboardInterrupt:
        return _stop("Stopped; what it was doing stays open in Gatebook.")
    finally:
        reporter.close()
    say(f"done; see {url}/sessions/{agent.session}/")
    return 0


def _stop(sentence: str) -> int:
    sys.stderr.write(f"demo agent: {sentence}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
