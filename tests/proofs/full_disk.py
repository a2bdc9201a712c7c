"""Program: `python -m tests.proofs.full_disk FOLDER` fills a file system, then mounts it read-only.

It runs in a mount namespace of its own (`unshare -Urm`) and prints what the file anchor says.
"""

import json
import subprocess
import sys
from pathlib import Path

from proofs.anchors.file import publish_to_file
from proofs.anchors.published_head import AnchorFailed, AnchorTarget, find_notes
from tests.proofs.small_tree import SmallTree, read_last


def main() -> None:
    """Append notes until the disk is full; then once more on a read-only one."""
    folder, tree = Path(sys.argv[1]), SmallTree(3)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
    path = folder / "heads"
    target = AnchorTarget("file", "file", str(path))
    last, number = None, 0
    try:
        while True:
            head = tree.make_head(number + 1, 3)
            (receipt,) = publish_to_file(target, [head], last, tree)
            last, number = read_last(head, json.loads(receipt)), number + 1
    except AnchorFailed as error:
        sys.stdout.write(f"{error}\n")
    assert len(find_notes(path.read_bytes())) == number
    assert path.read_bytes().endswith(b"\n\n")
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    try:
        list(publish_to_file(target, [head], last, tree))
    except AnchorFailed as error:
        sys.stdout.write(f"{error}\n")


if __name__ == "__main__":
    main()
