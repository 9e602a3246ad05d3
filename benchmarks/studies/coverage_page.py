"""What coverage.py says on the results page: its tables, its verdict and its picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import norm

from semistan.posterior.diagnostics import RHAT_LIMIT
from studies.study import Record

LEVELS = (0.5, 0.8, 0.95)
SETTING = ["function", "rows", "noise", "family"]
DATA_SET = [*SETTING, "number"]
DEFAULTS = "defaults"
RIVALS = ("deep-ensemble", "bde", "gam")  # that the defaults should predict better than
MEAN_95, LEAST_95, MEAN_50 = (0.93, 0.97), 0.88, (0.45, 0.60)  # that the defaults should have
LEAST_PASSED = 0.95  # of the defaults' data sets

INTRODUCTION = """\
Simulated data: 6 functions f of 5 inputs, N of 150, 300 and 1000 rows, low and high noise,
gaussian, poisson and bernoulli responses, eta = level + scale (f(u) + x' theta) with two structured
columns that vary with the inputs. A *cell* is one of these 108 settings, and each data set of a
cell has new columns and a new response. All networks have two hidden layers of 16 units. What each
contender is stands in [contenders.py](../benchmarks/studies/contenders.py), the data in
[simulated.py](../benchmarks/studies/simulated.py). No setting was chosen by the new rows.

Coverage is the share of 500 new rows whose central interval of eta holds the truth. RMSE, of eta's
posterior mean, and the width of 95% intervals are in units of the standard deviation of f's part of
eta. LPPD is the mean over the new rows of log (1/S) sum_s p(y | draw s); larger is better. Seconds
are from the table to the predictions. They leave out the compiling of semistan's program, which is
done once for each family, but not that of bde, which JAX does for every data set; both use all
cores, the others one. Rhat is the largest of eta at 50 new rows, within one subspace where there
are several; it passes up to {limit}."""


def section(
    records: Sequence[Record],
    introduction: str = INTRODUCTION,
    rivals: Sequence[str] = RIVALS,
) -> str:
    """Return the section's Markdown, behind an introduction."""
    frame = _frame(records)
    if frame.empty:
        return f"No cell has been measured.\n\n{_failures(records)}"
    quick = "**Quick cells: small networks, few draws. Their figures mean nothing.**"
    pieces = [
        quick if frame.quick.any() else "",
        introduction.format(limit=RHAT_LIMIT),
        _ran(frame),
        _contenders(frame),
        _check(frame),
    ]
    if DEFAULTS in set(frame.contender):
        pieces += [_paired(frame), _by_factor(frame), _verdict(frame, rivals)]
    return "\n\n".join(filter(None, [*pieces, _failures(records)]))


def _frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return one line for each cell that was measured."""
    return pd.DataFrame([_line(record) for record in records if "error" not in record])


def _line(record: Record) -> dict[str, Any]:
    covered, width = record["coverage"], record["width"]
    theta = record.get("theta_covered")
    return {
        **record["key"],
        **{f"c{round(100 * level)}": value for level, value in zip(LEVELS, covered, strict=True)},
        "width": width[-1],
        "rmse": record["rmse"],
        "lppd": record["lppd"],
        "ceiling": record["lppd_of_truth"],
        "seconds": record["fit_seconds"],
        "quick": record["quick"],
        "rhat": np.nan if record["rhat"] is None else record["rhat"],
        "theta_held": np.nan if theta is None else sum(theta[-1]),
        "theta_number": np.nan if theta is None else len(theta[-1]),
        "k": record.get("k", np.nan),
        "d": record.get("d", np.nan),
        "passed": record.get("passed", np.nan),
        "pooled": record.get("verdict", "").startswith("POOLED MODES"),
    }


def _order(frame: pd.DataFrame) -> list[str]:
    """Return the contenders in the order in which they first ran."""
    return list(dict.fromkeys(frame.contender))


def _cell_means(frame: pd.DataFrame, column: str) -> pd.Series:
    """Return a figure's mean in each cell."""
    return frame.groupby(SETTING)[column].mean()


def _mean(frame: pd.DataFrame, column: str) -> float:
    """Return the mean over cells of their means."""
    return float(_cell_means(frame, column).mean())


def _se(frame: pd.DataFrame, column: str) -> float:
    """Return the standard error of ``_mean``, cells being regarded as drawn at random."""
    means = _cell_means(frame, column)
    return float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else np.nan


def _with_error(frame: pd.DataFrame, column: str, digits: int = 3) -> str:
    mean, error = _mean(frame, column), _se(frame, column)
    return f"{mean:.{digits}f}" + (f" ({error:.{digits}f})" if np.isfinite(error) else "")


def wilson(held: float, number: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval for a share.

    Parameters
    ----------
    held, number : float
        How many of how many.
    level : float
        The interval's coverage.
    """
    z, share = norm.ppf((1 + level) / 2), held / number
    centre = (share + z**2 / (2 * number)) / (1 + z**2 / number)
    half = z / (1 + z**2 / number) * np.sqrt(share * (1 - share) / number + (z / number) ** 2 / 4)
    return float(centre - half), float(centre + half)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])


def _ran(frame: pd.DataFrame) -> str:
    """Say how much there is, and what may be compared with what."""
    sets, settings = (len(frame[names].drop_duplicates()) for names in (DATA_SET, SETTING))
    return (
        f"{sets} data sets of {settings} cells have been simulated so far; some contenders may have"
        " seen fewer. The first table has, of each contender, the means over the cells that it ran"
        " on, so that rows with different numbers of data sets do not compare; standard errors, in"
        " parentheses, regard the cells as drawn at random. Of theta, the share of 95% intervals"
        " that hold the truth, with Wilson's 95% interval. The true eta and sigma have an LPPD of"
        f" {_mean(frame.drop_duplicates(DATA_SET), 'ceiling'):.3f} over all data sets."
    )


def _contenders(frame: pd.DataFrame) -> str:
    head = [
        "contender", "data sets", "50%", "80%", "95%", "theta", "RMSE", "LPPD", "width",
        "seconds", "Rhat passes",
    ]  # fmt: skip
    return _table(
        head, [_contender(name, frame[frame.contender == name]) for name in _order(frame)]
    )


def _contender(name: str, own: pd.DataFrame) -> list[str]:
    judged = own.rhat.dropna()
    return [
        name,
        str(len(own)),
        *(_with_error(own, column) for column in ("c50", "c80", "c95")),
        _theta(own),
        _with_error(own, "rmse"),
        _with_error(own, "lppd"),
        f"{_mean(own, 'width'):.2f}",
        f"{_mean(own, 'seconds'):.1f}",
        f"{(judged <= RHAT_LIMIT).mean():.0%}" if len(judged) else "",
    ]


def _theta(own: pd.DataFrame) -> str:
    held, number = own.theta_held.sum(), own.theta_number.sum()
    if not number:
        return ""
    lower, upper = wilson(held, number)
    return f"{held / number:.3f} [{lower:.3f}, {upper:.3f}]"


def _check(frame: pd.DataFrame) -> str:
    """Say what coverage a model has that is known to be right."""
    right = frame[(frame.contender == "glm") & (frame.function == "linear")]
    if len(right) < 2:  # which have no standard deviation
        return ""
    return (
        "Where f is linear, the GLM is the true model, and a check of all this: on"
        f" {len(right)} data sets its 95% intervals hold the truth in {right.c95.mean():.3f} of the"
        f" rows in the mean, with a standard deviation of {right.c95.std(ddof=1):.3f} between data"
        f" sets, and {right.c95.min():.3f} in the least. The errors of a data set's rows go"
        " together, so that a cell of few data sets may be far from 0.95 without a fault."
    )


def _paired(frame: pd.DataFrame) -> str:
    """Compare each contender with the defaults on the data sets that both ran on."""
    rivals = [name for name in _order(frame) if name != DEFAULTS]
    lines = [_pair(name, pair) for name in rivals for pair in [_common(frame, name)] if len(pair)]
    head = [
        "contender", "data sets", "95%", "95% of the defaults", "RMSE, difference",
        "LPPD, difference", "seconds", "seconds of the defaults",
    ]  # fmt: skip
    text = (
        "Each contender and the defaults on the same data sets. Differences are the contender's"
        " minus the defaults': a positive one of RMSE and a negative one of LPPD say that the"
        " defaults predict better."
    )
    return f"{text}\n\n{_table(head, lines)}" if lines else ""


def _common(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a line for each data set that a contender and the defaults ran on."""
    columns = ["c95", "rmse", "lppd", "seconds"]
    theirs, ours = (
        frame[frame.contender == contender].set_index(DATA_SET)[columns]
        for contender in (name, DEFAULTS)
    )
    pair = theirs.join(ours, how="inner", rsuffix="_defaults").reset_index()
    return pair.assign(
        rmse_more=pair.rmse - pair.rmse_defaults, lppd_more=pair.lppd - pair.lppd_defaults
    )


def _pair(name: str, pair: pd.DataFrame) -> list[str]:
    return [
        name,
        str(len(pair)),
        f"{_mean(pair, 'c95'):.3f}",
        f"{_mean(pair, 'c95_defaults'):.3f}",
        _with_error(pair, "rmse_more"),
        _with_error(pair, "lppd_more"),
        f"{_mean(pair, 'seconds'):.1f}",
        f"{_mean(pair, 'seconds_defaults'):.1f}",
    ]


def _by_factor(frame: pd.DataFrame) -> str:
    """Show where the defaults are better or worse."""
    own = frame[frame.contender == DEFAULTS]
    lines = []
    for factor in SETTING:
        for value, some in own.groupby(factor, sort=False):
            figures = [_with_error(some, column) for column in ("c50", "c80", "c95", "rmse")]
            lines.append([f"{factor} {value}", str(len(some)), *figures, _theta(some)])
    head = ["defaults, by", "data sets", "50%", "80%", "95%", "RMSE", "theta"]
    return _table(head, lines)


def _verdict(frame: pd.DataFrame, rivals: Sequence[str]) -> str:
    """Hold the defaults against what was asked of them."""
    own = frame[frame.contender == DEFAULTS]
    every = int((own.k == own.d).sum())
    lines = [
        f"The defaults sampled all weights on {every} of {len(own)} data sets. What was asked of"
        " them:",
        "",
        *(f"- {line}" for line in (*_calibrated(own), *_better(frame, rivals))),
    ]
    return "\n".join(lines)


def _calibrated(own: pd.DataFrame) -> Iterator[str]:
    mean = _mean(own, "c95")
    yield _met(
        MEAN_95[0] <= mean <= MEAN_95[1],
        f"mean coverage of 95% intervals between {MEAN_95[0]} and {MEAN_95[1]}: {mean:.3f}",
    )
    cells = _cell_means(own, "c95").sort_values()
    below, sizes = int((cells < LEAST_95).sum()), own.groupby(SETTING).size()
    several = f"{sizes.min()} to {sizes.max()} data sets"
    each = "one data set" if sizes.max() == 1 else several
    yield _met(
        not below,
        f"no cell below {LEAST_95}: {below} of {len(cells)} are, of {each} each; the least are"
        f" {_named(cells)}",
    )
    mean = _mean(own, "c50")
    yield _met(
        MEAN_50[0] <= mean <= MEAN_50[1],
        f"mean coverage of 50% intervals between {MEAN_50[0]:.2f} and {MEAN_50[1]:.2f}: {mean:.3f}",
    )
    lower, upper = wilson(own.theta_held.sum(), own.theta_number.sum())
    yield _met(
        lower <= LEVELS[-1] <= upper,
        f"0.95 within Wilson's interval of theta's coverage: {lower:.3f} to {upper:.3f}",
    )
    passed, number = int(own.passed.sum()), len(own)
    pooled = f", and chains are pooled modes on {own.pooled.sum()}" if own.pooled.any() else ""
    yield _met(
        passed >= LEAST_PASSED * number,
        f"all diagnostics pass on at least {LEAST_PASSED:.0%} of the data sets: on {passed} of"
        f" {number}{pooled}",
    )


def _named(cells: pd.Series) -> str:
    """Name up to four cells with their figures, as "step 150 low poisson 0.81"."""
    return "; ".join(
        f"{' '.join(map(str, name))} {value:.3f}" for name, value in cells.head(4).items()
    )


def _better(frame: pd.DataFrame, rivals: Sequence[str]) -> Iterator[str]:
    for name in rivals:
        pair = _common(frame, name)
        if pair.empty:
            yield f"*not measured*: better than {name}"
            continue
        rmse, lppd = (_mean(pair, column) for column in ("rmse_more", "lppd_more"))
        yield _met(
            rmse > 0 > lppd,
            f"RMSE and LPPD better in the mean than {name} on {len(pair)} data sets: differences"
            f" {_with_error(pair, 'rmse_more')} and {_with_error(pair, 'lppd_more')}",
        )


def _met(reached: bool, text: str) -> str:
    return f"{'met' if reached else '**not met**'}: {text}"


def _failures(records: Sequence[Record]) -> str:
    """Say which cells failed, and how."""
    failed = [record for record in records if "error" in record]
    if not failed:
        return ""
    found = pd.DataFrame(
        [{"who": item["key"]["contender"], "how": item["error"]} for item in failed]
    )
    counts = found.value_counts().items()
    lines = [f"- {who}, {count} times: {how}" for (who, how), count in counts]
    return "Cells that failed, and are in no figure above:\n\n" + "\n".join(lines)


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw coverage by contender, and that of the defaults in every cell."""
    frame = _frame(records)
    if frame.empty:
        return
    figure = Figure(figsize=(13, 6.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.45))
    _draw_contenders(left, frame)
    _draw_cells(figure, right, frame[frame.contender == DEFAULTS])
    figure.savefig(path, dpi=130)


def _draw_contenders(axes: Any, frame: pd.DataFrame) -> None:
    names = _order(frame)[::-1]
    for level, colour, marker in zip(LEVELS, ("C0", "C2", "C3"), "osD", strict=True):
        column = f"c{round(100 * level)}"
        own = [frame[frame.contender == name] for name in names]
        means, errors = ([of(some, column) for some in own] for of in (_mean, _se))
        axes.axvline(level, color=colour, linewidth=1, linestyle=":")
        axes.errorbar(
            means, range(len(names)), xerr=np.nan_to_num(errors), fmt=marker, color=colour,
            markersize=5, label=f"{level:.0%} intervals",
        )  # fmt: skip
    counts = frame.contender.value_counts()
    axes.set_yticks(range(len(names)), [f"{name} ({counts[name]})" for name in names])
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("share that holds the true eta; dotted: nominal")
    axes.set_title("Contenders (data sets), mean over cells, one SE", fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, fontsize=8)


def _draw_cells(figure: Figure, axes: Any, own: pd.DataFrame) -> None:
    """Draw the coverage of the defaults' 95% intervals, a function a line."""
    if own.empty:
        axes.set_axis_off()
        return
    table = own.pivot_table(
        index="function", columns=["family", "noise", "rows"], values="c95", sort=True
    )
    image = axes.imshow(table, cmap="RdBu", vmin=0.80, vmax=1.10, aspect="auto")
    for (line, column), value in np.ndenumerate(table.to_numpy()):
        if np.isfinite(value):
            shown, dark = f"{100 * value:.0f}", abs(value - 0.95) > 0.1
            axes.text(
                column, line, shown, ha="center", va="center", fontsize=8,
                color="white" if dark else "black",
            )  # fmt: skip
    axes.set_yticks(range(len(table)), table.index)
    labels = [f"{family}, {noise}, {rows}" for family, noise, rows in table.columns]
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=8)
    axes.set_title("Defaults: coverage of 95% intervals by cell, in %", fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=(0.80, 0.88, 0.95, 1.0))
    bar.ax.set_ylim(0.80, 1.0)
