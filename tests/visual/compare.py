"""Compare two folders of pictures page by page, by boxes and styles rather than by letters.

Words may change between the two. A longer word may make an inline box wider, move the boxes after
it on its line, and give a paragraph another line. Everything else is a difference of
layout: a row that wraps, another gap, another width of a block, a missing element, another colour.

The report groups the pages: those with a difference of layout of their own come first, those with
only words that changed come last. A difference on many pages is listed once, at the top.
"""

import base64
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page

TOLERANCE_PX = 3.0
MAX_LEFT_PX = 24.0  # the indent of what starts at the left of its box
WORDS = "lines"  # the one kind of difference that words alone explain
MAX_OWN = 3  # a difference on more pages than these is listed once for all of them
BLOCKS = {"block", "flex", "grid", "list-item", "table", "flow-root"}
ROWS = {"flex", "grid", "table-row"}
INLINES = {"inline", "inline-block", "inline-flex"}
STYLES = (
    *("colour", "background", "top border", "left border", "bottom border"),
    *("font size", "font weight", "font", "white space"),
)

Box = dict[str, Any]


class Difference(NamedTuple):
    """One difference: its kind, the element, and what differs."""

    kind: str
    element: str
    text: str


@dataclass
class PageDifferences:
    """What differs on a page at one width."""

    name: str
    width: int
    differences: list[Difference] = field(default_factory=list)
    pixel_share: float | None = None
    words: list[tuple[str, str]] = field(default_factory=list)

    @property
    def stem(self) -> str:
        return f"{self.name}.{self.width}"

    @property
    def layout_differences(self) -> list[Difference]:
        return [change for change in dict.fromkeys(self.differences) if change.kind != WORDS]

    @property
    def is_layout_changed(self) -> bool:
        return bool(self.layout_differences)


def compare_trees(before: Box, after: Box, tolerance: float = TOLERANCE_PX) -> list[Difference]:
    """Return what differs between two trees of boxes."""
    differences: list[Difference] = []
    _compare_children(before, after, tolerance, differences, is_rigid=True)
    return differences


def list_changed_words(before: Box, after: Box) -> list[tuple[str, str]]:
    """Return the texts that differ, apart from numbers, in two trees of boxes."""
    pairs = [(before["text"], after["text"])]
    words = [pair for pair in pairs if _drop_numbers(pair[0]) != _drop_numbers(pair[1])]
    for old, new in _align(before["children"], after["children"]):
        if old is not None and new is not None:
            words += list_changed_words(old, new)
    return list(dict.fromkeys(words))


def _drop_numbers(text: str) -> str:
    return re.sub(r"(?<![a-zA-Z])[0-9a-f]*[0-9][0-9a-f.:,]*", "0", text)


def _name(box: Box) -> str:
    classes = "".join(f".{name}" for name in box["class"].split())
    words = f" “{box['text'][:40]}”" if box["text"] else ""
    return f"{box['tag']}{classes}{words}"


def _read(box: Box) -> str:
    """Return the words of a box and of what is in it."""
    return " ".join([box["text"], *(_read(child) for child in box["children"])])


def _align(before: list[Box], after: list[Box]) -> Iterator[tuple[Box | None, Box | None]]:
    """Pair the children of two boxes; some stay without a pair."""
    keys = [[(box["tag"], box["kind"]) for box in boxes] for boxes in (before, after)]
    matcher = SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for tag, low, high, after_low, after_high in matcher.get_opcodes():
        if tag == "equal":
            yield from zip(before[low:high], after[after_low:after_high], strict=True)
        else:
            yield from ((box, None) for box in before[low:high])
            yield from ((None, box) for box in after[after_low:after_high])


def _compare_children(
    before: Box, after: Box, tolerance: float, differences: list[Difference], *, is_rigid: bool
) -> bool:
    """Add the differences below a pair of boxes; True when one of them changes its height."""
    explains, previous, heights = False, None, list[int]()
    is_prose = bool(before["text"] and after["text"])
    for old, new in _align(before["children"], after["children"]):
        if old is None or new is None:
            if not is_prose:
                box = old or new
                assert box is not None
                kind = "removed" if new is None else "added"
                differences.append(Difference(kind, _name(box), f"in {_name(after)}"))
            explains, previous = True, None
            continue
        _compare_styles((before, after), (old, new), differences)
        is_child_rigid = (
            is_rigid
            and before["display"] in BLOCKS - {"flex", "table"}
            and before["tag"] != "dl"
            and old["display"] in BLOCKS
            and old["tag"] != "legend"  # as wide as its words
            and not old["float"]
        )
        if is_child_rigid or (previous is None and not is_prose and not old["float"]):
            _compare_indents(before, after, old, new, tolerance, differences)
        if is_child_rigid:
            _compare_widths(before, after, old, new, tolerance, differences)
        if not is_prose and not old["float"]:
            explains |= _compare_place(
                (before, after), (old, new), previous, tolerance, differences
            )
        count = len(differences)
        explains |= _compare_heights(old, new, tolerance, differences, is_rigid=is_child_rigid)
        if differences[count:] and differences[-1][:2] == ("height", _name(new)):
            heights.append(len(differences) - 1)
        previous = old, new
    if before["display"] in ROWS and _read(before) != _read(after):
        for index in heights:  # stretched to the tallest of their row, which has other words
            differences[index] = differences[index]._replace(kind=WORDS)
    return explains


def _compare_styles(
    parents: tuple[Box, Box], boxes: tuple[Box, Box], differences: list[Difference]
) -> None:
    """Report styles that differ, except those that the parents of both have too."""
    inherited = set(_list_style_changes(*parents))
    changes = [change for change in _list_style_changes(*boxes) if change not in inherited]
    if changes:
        differences.append(Difference("style", _name(boxes[1]), ", ".join(changes)))


def _list_style_changes(old: Box, new: Box) -> list[str]:
    pairs = zip(STYLES, old["style"].split("|"), new["style"].split("|"), strict=True)
    return [f"{name} {was} → {now}" for name, was, now in pairs if was != now]


def _compare_indents(
    before: Box, after: Box, old: Box, new: Box, tolerance: float, differences: list[Difference]
) -> None:
    indents = old["x"] - before["x"], new["x"] - after["x"]
    is_left = old["display"] in BLOCKS or indents[0] <= MAX_LEFT_PX  # else words may centre it
    if is_left and abs(indents[0] - indents[1]) > tolerance:
        text = f"indent {indents[0]:.0f} → {indents[1]:.0f}"
        differences.append(Difference("indent", _name(new), text))


def _compare_widths(
    before: Box, after: Box, old: Box, new: Box, tolerance: float, differences: list[Difference]
) -> None:
    is_inherited = abs((new["w"] - old["w"]) - (after["w"] - before["w"])) <= tolerance
    if abs(old["w"] - new["w"]) > tolerance and not is_inherited:
        text = f"width {old['w']:.0f} → {new['w']:.0f}"
        differences.append(Difference("width", _name(new), text))


def _compare_place(
    parents: tuple[Box, Box],
    boxes: tuple[Box, Box],
    previous: tuple[Box, Box] | None,
    tolerance: float,
    differences: list[Difference],
) -> bool:
    """Compare positions of boxes relative to the boxes before them; True when they differ."""
    if previous is None:
        gaps = [box["y"] - parent["y"] for box, parent in zip(boxes, parents, strict=True)]
        lines = [False, False]
    else:
        pairs = list(zip(previous, boxes, strict=True))
        lines = [_is_in_one_line(last, box) for last, box in pairs]
        gaps = [
            box["y"] - last["y"] - (0 if in_one_line else last["h"])
            for (last, box), in_one_line in zip(pairs, lines, strict=True)
        ]
    name = _name(boxes[1])
    if lines[0] != lines[1]:
        is_folded = boxes[1]["tag"] in ("td", "th") and boxes[1]["display"] != "table-cell"
        kind = WORDS if is_folded else "wrap"  # cells of a folded table flow like words
        text = (
            "moved to a line of its own" if lines[0] else "moved up to the line of the box before"
        )
        differences.append(Difference(kind, name, f"{text}, in {_name(parents[1])}"))
        return True
    is_centred = lines[0] or boxes[0]["display"] in INLINES
    if abs(gaps[0] - gaps[1]) > (12 if is_centred else tolerance):
        text = f"gap above {gaps[0]:.0f} → {gaps[1]:.0f}, in {_name(parents[1])}"
        differences.append(Difference("gap", name, text))
        return True
    return False


def _is_in_one_line(last: Box, box: Box) -> bool:
    overlap = min(last["y"] + last["h"], box["y"] + box["h"]) - max(last["y"], box["y"])
    return bool(overlap > min(last["h"], box["h"]) / 2)


def _compare_heights(
    old: Box, new: Box, tolerance: float, differences: list[Difference], *, is_rigid: bool
) -> bool:
    """Compare a pair of boxes and what is below them; True when the height differs."""
    count = len(differences)
    explained = _compare_children(old, new, tolerance, differences, is_rigid=is_rigid)
    if abs(old["h"] - new["h"]) <= tolerance:
        return explained and len(differences) > count
    if not explained:
        is_prose = all(child["display"] in INLINES for child in new["children"])
        is_words = new["display"] == "inline" or (is_prose and _read(old) != _read(new))
        text = f"height {old['h']:.0f} → {new['h']:.0f}"
        kind = WORDS if is_words else "height"
        differences.append(Difference(kind, _name(new), text))
    return True


def compare_pages(before: Path, after: Path, name: str, width: int) -> PageDifferences:
    """Compare the boxes and styles of one page at one width, in both schemes."""
    result = PageDifferences(name, width)
    for scheme in ("light", "dark"):
        file = f"{name}.{width}.{scheme}.json"
        old, new = (json.loads((folder / file).read_text("utf-8")) for folder in (before, after))
        differences = compare_trees(old["tree"], new["tree"])
        if scheme == "light":
            result.words = list_changed_words(old["tree"], new["tree"])
        if scheme == "dark":
            differences = [change for change in differences if change.kind == "style"]
        for difference in differences:
            if difference not in result.differences:
                result.differences.append(difference)
    result.differences += find_overflow(after, name, width)
    return result


def find_overflow(folder: Path, name: str, width: int) -> list[Difference]:
    """Return a difference when the page scrolls sideways."""
    page = json.loads((folder / f"{name}.{width}.light.json").read_text("utf-8"))
    if page["overflow"] <= 0:
        return []
    return [Difference("overflow", "page", f"{page['overflow']} px: {', '.join(page['beyond'])}")]


def list_names(folder: Path) -> set[tuple[str, int]]:
    """Return the pages of a folder and their widths."""
    stems = (path.name.split(".") for path in folder.glob("*.light.json"))
    return {(name, int(width)) for name, width, *_ in stems}


def measure_pixels(page: Page, before: Path, after: Path) -> float:
    """Return the share of pixels that differ between two pictures of the same width."""
    images = [
        "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
        for path in (before, after)
    ]
    share: float = page.evaluate(
        """async ([before, after]) => {
          const read = async url => {
            const image = new Image();
            image.src = url;
            await image.decode();
            const canvas = new OffscreenCanvas(image.width, image.height);
            const context = canvas.getContext("2d");
            context.drawImage(image, 0, 0);
            return context.getImageData(0, 0, image.width, image.height);
          };
          const [old, now] = [await read(before), await read(after)];
          const low = new Uint32Array(old.data.buffer), high = new Uint32Array(now.data.buffer);
          let differing = Math.abs(low.length - high.length);
          for (let index = 0; index < Math.min(low.length, high.length); index++)
            if (low[index] !== high[index]) differing++;
          return differing / Math.max(low.length, high.length);
        }""",
        images,
    )
    return share


def compare_folders(before: Path, after: Path, page: Page | None) -> list[PageDifferences]:
    """Compare every page that is in `after`; those only in one folder are reported too."""
    old, new = list_names(before), list_names(after)
    results = []
    for name, width in sorted(old | new):
        if (name, width) not in new or (name, width) not in old:
            kind = "added" if (name, width) in new else "removed"
            results.append(PageDifferences(name, width, [Difference(kind, "page", "whole page")]))
            continue
        result = compare_pages(before, after, name, width)
        file = f"{name}.{width}.light.blank.png"
        if page is not None:
            result.pixel_share = measure_pixels(page, before / file, after / file)
        results.append(result)
    return results


def find_common_differences(results: list[PageDifferences]) -> dict[Difference, list[str]]:
    """Return the differences of layout that many pages share, with the names of those pages."""
    places = defaultdict(list)
    for result in results:
        for difference in dict.fromkeys(map(_drop_words, result.layout_differences)):
            places[difference].append(result.stem)
    ordered = sorted(places.items(), key=lambda item: -len(item[1]))
    return {difference: stems for difference, stems in ordered if len(stems) > MAX_OWN}


def _drop_words(difference: Difference) -> Difference:
    """Return a difference without the words of its elements, which differ between pages."""
    element, text = (re.sub(r" “.*”", "", part) for part in difference[1:])
    return Difference(difference.kind, element, text)


def list_own_differences(
    page: PageDifferences, common: dict[Difference, list[str]]
) -> list[Difference]:
    """Return the differences of layout that few other pages share."""
    return [change for change in page.layout_differences if _drop_words(change) not in common]


def group_pages(results: list[PageDifferences]) -> dict[str, list[PageDifferences]]:
    """Group pages by what differs on them: the most to look at first."""
    common = find_common_differences(results)
    groups: dict[str, list[PageDifferences]] = {
        "A layout of their own": [],
        "Only the differences of many pages": [],
        "Only words": [],
        "The same": [],
    }
    own, shared, words, same = groups.values()
    for result in results:
        if list_own_differences(result, common):
            own.append(result)
        elif result.is_layout_changed:
            shared.append(result)
        else:
            (words if result.words or result.differences else same).append(result)
    return groups


def describe_results(results: list[PageDifferences], most: int = 15) -> str:
    """Return in words what differs on several pages, then what differs on one."""
    common = find_common_differences(results)
    lines = [
        f"{len(stems)} pages, such as {stems[0]}: {': '.join(difference)}"
        for difference, stems in common.items()
    ]
    for result in results:
        own = list_own_differences(result, common)
        if own:
            lines.append(f"\n{result.name} at {result.width} px")
        lines += [f"  {': '.join(difference)}" for difference in own[:most]]
        if len(own) > most:
            lines.append(f"  and {len(own) - most} more")
    kinds = Counter(change.kind for result in results for change in result.differences)
    changed = sum(result.is_layout_changed for result in results)
    lines.append(f"\n{len(results)} pictures, {changed} with another layout; {dict(kinds)}")
    counts = [f"{name.lower()} {len(pages)}" for name, pages in group_pages(results).items()]
    lines.append(f"Pages by difference: {', '.join(counts)}")
    return "\n".join(lines)


def write_report(results: list[PageDifferences], before: Path, after: Path, path: Path) -> None:
    """Write an HTML page with both pictures side by side and the differences."""
    common = find_common_differences(results)
    parts = [
        "<!doctype html><meta charset=utf-8><title>Pictures before and after</title><style>"
        "body{font:14px system-ui;margin:1rem}img{width:100%;border:1px solid #888}"
        ".row{display:grid;grid-template-columns:1fr 1fr;gap:1rem;align-items:start}"
        "summary{font-weight:600}code{background:#eee}ins{background:#dfd}del{background:#fdd}"
        "</style>"
    ]
    if common:
        items = "".join(
            f"{_format_difference(difference)}: {len(stems)} pages, such as "
            f"<a href='#{stems[0]}'>{stems[0]}</a>"
            for difference, stems in common.items()
        )
        parts.append(f"<h2>Differences of many pages</h2><ul>{items}</ul>")
    for name, pages in group_pages(results).items():
        parts.append(f"<h2>{name}: {len(pages)}</h2>")
        parts += [_format_page(page, common, before, after) for page in pages]
    path.write_text("\n".join(parts), encoding="utf-8")


def _format_difference(difference: Difference) -> str:
    kind, element, text = map(escape, difference)
    return f"<li><b>{kind}</b> <code>{element}</code> {text}"


def _format_page(
    page: PageDifferences, common: dict[Difference, list[str]], before: Path, after: Path
) -> str:
    """Return the differences of one page that other pages do not share, its words and pictures."""
    own = list_own_differences(page, common)
    share = "" if page.pixel_share is None else f", {page.pixel_share:.1%} of pixels"
    words = "".join(
        f"<li><del>{escape(old)}</del> <ins>{escape(new)}</ins>" for old, new in page.words
    )
    images = "".join(
        f"<img loading=lazy alt='{folder.name}' src='{folder.name}/{page.stem}.{scheme}.png'>"
        for scheme in ("light", "dark")
        for folder in (before, after)
    )
    return (
        f"<details id='{page.stem}'><summary>{page.stem}: {len(own)} of layout, "
        f"{len(page.words)} of words{share}</summary>"
        f"<ul>{''.join(map(_format_difference, own))}</ul>"
        f"<details><summary>Words</summary><ul>{words}</ul></details>"
        f"<div class=row>{images}</div></details>"
    )
