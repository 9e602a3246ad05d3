"""The common look: colours, sizes, a strip for the title above and one for the caption below.

The colours are those that Okabe and Ito (2008), Color Universal Design, chose for readers who
tell some colours apart badly. A picture is 7 inches wide, so that its text is readable when it
is shown 700 pixels wide. Legends stand above the panels, where they cover no data.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK, MUTED, FAINT = "#1a1a1a", "#5f5f5f", "#c9c9c9"
WIDTH = 7.0  # inches
DPI = 144
SETTINGS = {
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "axes.titlesize": 9.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "butt",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "text.parse_math": False,  # a column may be called 'cost_$'
    "axes.formatter.useoffset": False,
    "svg.hashsalt": "semistan",
}

TITLE_HEIGHT = 0.34  # inches
LEGEND_HEIGHT = 0.23  # of one line
CAPTION_HEIGHT = 0.16  # of one line
CAPTION_CHARACTERS = 110
CHARACTER = 0.072  # inches, of the legend's font


@contextmanager
def look() -> Iterator[None]:
    """Draw or write within the common look; also a decorator of functions that draw."""
    from matplotlib import style

    with style.context(["default", SETTINGS]), warnings.catch_warnings():
        # A name in letters that the font lacks is drawn as boxes; the alternative text has it.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def colour(i: int) -> str:
    """Return the colour of the i-th series, from 0."""
    return SERIES[i % len(SERIES)]


def new_figure(height: float) -> Figure:
    """Return an empty figure whose panels have this height in inches, labels included."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def panels(figure: Figure, n: int, columns: int) -> list[Axes]:
    """Add n panels, line by line with at most so many columns."""
    columns = min(n, columns)
    grid = figure.add_gridspec(-(-n // columns), columns)
    return [figure.add_subplot(grid[divmod(i, columns)]) for i in range(n)]


def finish(figure: Figure, title: str, *, caption: str = "", handles: Sequence[Any] = ()) -> Figure:
    """Add title, legend and caption in strips of their own; the figure grows by their height."""
    lines = textwrap.wrap(caption, CAPTION_CHARACTERS)
    titles = textwrap.wrap(title, 78)
    columns = _legend_columns([handle.get_label() for handle in handles])
    heading = TITLE_HEIGHT + 0.2 * (len(titles) - 1)
    top = heading + LEGEND_HEIGHT * -(-len(handles) // columns)
    bottom = CAPTION_HEIGHT * len(lines) + 0.05
    inner = figure.get_figheight()
    height = inner + top + bottom
    figure.set_size_inches(WIDTH, height)
    figure.set_layout_engine(
        "constrained", rect=(0, bottom / height, 1, inner / height), w_pad=0.08, h_pad=0.06
    )
    figure.text(
        0.012, 1 - 0.08 / height, "\n".join(titles), va="top", fontsize=11, fontweight="bold"
    )
    if handles:
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0, 1 - (heading - 0.06) / height),
            ncols=columns, borderaxespad=0.1, labelspacing=0.35,
        )  # fmt: skip
    figure.text(
        0.012, 0.05 / height, "\n".join(lines), va="bottom", fontsize=8, color=MUTED,
        linespacing=1.25,
    )  # fmt: skip
    return figure


def reserve(figure: Figure, reservations: Sequence[str]) -> Figure:
    """Say beside the title what keeps the draws from being those of the posterior."""
    if reservations:
        figure.text(
            0.988, 1 - 0.1 / figure.get_figheight(), "\n".join(reservations), ha="right", va="top",
            fontsize=8, color=SERIES[1],
        )  # fmt: skip
    return figure


def label(text: str) -> str:
    """Return a name for a legend, which matplotlib before 3.10 hides if it begins with '_'."""
    return f" {text}" if text.startswith("_") else text


def wrapped(name: str, width: int = 24) -> str:
    """Break a long name such as b_C_occupation_prof_specialty into lines, after underscores."""
    lines = [""]
    for part in name.replace("_", "_\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def label_levels(axes: Axes, levels: Sequence[Any], *, first: int = 0) -> None:
    """Write levels below the axis, at whole numbers, turned where they would touch each other."""
    crowded = len(levels) * max(len(str(level)) for level in levels) > 70
    places = range(first, first + len(levels))
    axes.set_xticks(places, [wrapped(str(level), 14) for level in levels],
                    rotation=45 if crowded else 0)  # fmt: skip
    axes.set_xlim(first - 0.6, first + len(levels) - 0.4)
    if crowded:
        figure: Any = axes.figure
        figure.set_figheight(figure.get_figheight() + 0.8)


def _legend_columns(labels: Sequence[str]) -> int:
    if not labels:
        return 1
    width = max(len(text) for text in labels) * CHARACTER + 0.55
    return max(1, min(len(labels), int(WIDTH / width)))
