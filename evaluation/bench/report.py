"""The report: medians, percentiles and bars, as a text table and a JSON file."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below or at which `share` (0 to 1) of `values` lie: the nearest rank, no
    interpolation."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass
class Figure:
    """One line of the table. `rounds` are the measured values; `bar` is their upper limit or None."""

    database: str
    name: str
    unit: str
    rounds: list[float]
    bar: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The median, which is compared with the bar."""
        return statistics.median(self.rounds)

    @property
    def met(self) -> bool | None:
        """Whether the median is within the bar; None without a bar."""
        return None if self.bar is None else self.median <= self.bar


@dataclass
class Report:
    """All figures of a run."""

    about: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)

    def add(
        self,
        database: str,
        name: str,
        unit: str,
        rounds: Iterable[float],
        *,
        bar: float | None = None,
        note: str = "",
    ) -> None:
        """Add a figure, unless it has no values."""
        values = list(rounds)
        if values:
            self.figures.append(Figure(database, name, unit, values, bar, note))

    def render_table(self) -> str:
        """Return the figures as text, one line each, grouped by database."""
        lines = []
        width = max((len(figure.name) for figure in self.figures), default=0)
        for database in dict.fromkeys(figure.database for figure in self.figures):
            lines += [
                "",
                f"{database}",
                f"{'':{width}}  {'median':>10} {'low':>10} {'high':>10}  bar",
            ]
            for figure in self.figures:
                if figure.database == database:
                    lines.append(_format_line(figure, width))
        missed = [figure for figure in self.figures if figure.met is False]
        barred = [figure for figure in self.figures if figure.met is not None]
        lines += ["", f"{len(barred) - len(missed)} of {len(barred)} bars met."]
        return "\n".join(lines).lstrip("\n")

    def write(self, path: Path) -> None:
        """Write all figures as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = [
            {**asdict(figure), "median": figure.median, "met": figure.met}
            for figure in self.figures
        ]
        path.write_text(json.dumps({**self.about, "figures": figures}, indent=1) + "\n")


def _format_line(figure: Figure, width: int) -> str:
    low, high = min(figure.rounds), max(figure.rounds)
    shown = f"{figure.name:{width}}  {_format_number(figure.median):>10} {_format_number(low):>10} {_format_number(high):>10}  {figure.unit}"
    if figure.bar is not None:
        shown += f"  ≤ {_format_number(figure.bar)}: {'met' if figure.met else 'NOT MET'}"
    return shown + (f"  ({figure.note})" if figure.note else "")


def _format_number(value: float) -> str:
    """Format a number with at most four significant digits."""
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
