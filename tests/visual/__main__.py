"""`python -m tests.visual [--before REF] [PAGE…]`: pictures of all pages, compared with REF's.

Without --before it only takes the pictures and checks that no page scrolls sideways. With it, REF
is checked out into a temporary worktree, whose own code serves the pages of its pictures. The
pictures and report.html are stored in --folder. The exit code is 1 when a layout differs.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.visual import compare
from tests.visual.pictures import open_browser

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def check_out(ref: str) -> Iterator[Path]:
    """Check `ref` out into a temporary worktree, with these scripts in it."""
    with tempfile.TemporaryDirectory(prefix="gatebook-before-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), ref], cwd=ROOT, check=True)
        try:
            scripts = tree / "tests" / "visual"
            shutil.rmtree(scripts, ignore_errors=True)
            shutil.copytree(Path(__file__).parent, scripts)
            yield tree
        finally:
            remove = ["git", "worktree", "remove", "--force", str(tree)]
            subprocess.run(remove, cwd=ROOT, check=True)


def start_pictures(tree: Path, folder: Path, pages: list[str]) -> "subprocess.Popen[bytes]":
    """Start to take the pictures of a tree in a process of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "tests.visual.pictures", str(folder), *pages]
    return subprocess.Popen(command, cwd=tree)


def main() -> int:
    """Take the pictures, compare them, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="REF", help="the git ref to compare with")
    parser.add_argument("--folder", type=Path, default=ROOT / "var" / "visual")
    parser.add_argument("--keep", action="store_true", help="compare the pictures there are")
    parser.add_argument("pages", nargs="*", help="names of pages; all without")
    options = parser.parse_args()
    before, after = options.folder / "before", options.folder / "after"
    if not options.keep and not take_all(options.before, before, after, options.pages):
        return 2
    if not options.before:
        results = [
            compare.PageDifferences(name, width, compare.find_overflow(after, name, width))
            for name, width in sorted(compare.list_names(after))
        ]
    else:
        with open_browser() as browser:
            results = compare.compare_folders(before, after, browser.new_page())
        report = options.folder / "report.html"
        compare.write_report(results, before, after, report)
        sys.stdout.write(f"Report: {report}\n")
    sys.stdout.write(f"{compare.describe_results(results)}\n")
    return int(any(result.is_layout_changed for result in results))


def take_all(ref: str | None, before: Path, after: Path, pages: list[str]) -> bool:
    """Take the pictures of this tree and of `ref`; True when both were taken."""
    if ref is None:
        return start_pictures(ROOT, after, pages).wait() == 0
    with check_out(ref) as tree:
        processes = [start_pictures(tree, before, pages), start_pictures(ROOT, after, pages)]
        codes = [process.wait() for process in processes]
    return codes == [0, 0]


if __name__ == "__main__":
    sys.exit(main())
