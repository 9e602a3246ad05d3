"""What can be asked for of predictions and effects: options that travel together.

Nothing heavy is imported, so that the command line can show them in its help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from semistan.errors import InputError, did_you_mean

KNOWN, NEW, NONE, MARGINAL = GROUPS = ("known", "new", "none", "marginal")
GROUPS_TEXT = (
    "Effects of groups: known (of the rows' levels), new (of levels drawn in their place), none, "
    "or marginal (integrated out of the mean)."
)


def check_interval(interval: float) -> None:
    """Refuse an interval whose probability is not between 0 and 1.

    Raises
    ------
    InputError
        With the value.
    """
    if not 0 < interval < 1:
        raise InputError(f"--interval is a probability between 0 and 1, got {interval:g}")


def check_groups(groups: str) -> None:
    """Refuse an unknown answer to what the effects of groups are.

    Raises
    ------
    InputError
        Naming the nearest one.
    """
    if groups not in GROUPS:
        raise InputError(
            f"groups are {', '.join(GROUPS[:-1])} or {GROUPS[-1]}, got '{groups}'."
            f"{did_you_mean(groups, GROUPS)}"
        )


def check_response_groups(groups: str) -> None:
    """Refuse new responses with the effects of groups integrated out.

    Raises
    ------
    InputError
        Saying which answer is meant.
    """
    if groups == MARGINAL:
        raise InputError(
            "a new response is of some level of its group, and --groups marginal is of means: use "
            "--groups new, for levels that are drawn from their distribution"
        )


class _Options:
    """Options that are given by keyword."""

    __slots__ = ()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the options with these values.

        Raises
        ------
        InputError
            For an unknown option, with the nearest one, or a value that cannot be used.
        """
        known = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        for name in given:
            if name not in known:
                raise InputError(f"there is no option '{name}'.{did_you_mean(name, known)}")
        return cls(**given)


@dataclass(frozen=True, slots=True)
class PredictOptions(_Options):
    """What to predict of new rows.

    Attributes
    ----------
    kind : str, optional
        ``epred`` (the mean, or the probability of each category), ``linpred`` (the linear
        predictor) or ``predict`` (responses); by default ``epred``, or ``linpred`` where a part is
        asked for.
    part : str
        Of the linear predictor: ``all``, ``structured`` (x' theta), ``nn`` (the network, centred
        over the training rows) or ``penalised`` (smooths without their straight parts, and
        group-level effects); b_Intercept, offsets and the parts add up to all. Where
        coefficients are orthogonalised, the parts are those of b_x_orth and b_Intercept_orth.
    dpar : str, optional
        A parameter of the response's distribution, as ``sigma`` or ``muvirginica``, of which to
        predict the value (``epred``) or the predictor (``linpred``) instead.
    interval : float
        Probability of the interval.
    seed : int
        Seed of all that is drawn: new responses, the effects of new levels, draws from priors.
    engine : str
        ``torch``, or ``onnx`` for the bundle's ``predictor.onnx``.
    prior : bool
        Whether to predict from the priors, with as many draws by the seed as the run has; the
        run needs no chains then.
    drop_missing : bool
        Whether rows with missing values are left out.
    allow_new_levels : bool
        Whether group-level terms may have levels that the model was not trained on; their effects
        are drawn from the distribution of the levels.
    groups : str
        What the effects of groups are: ``known``, those of the rows' levels; ``new``, those of new
        levels in place of the rows' own; ``none``, left out, as of a level at the centre; or
        ``marginal``, integrated out of the mean over the distribution of the levels.

    Raises
    ------
    InputError
        If the interval is no probability.
    """

    kind: str | None = None
    part: str = "all"
    dpar: str | None = None
    interval: float = 0.95
    seed: int = 1
    engine: str = "torch"
    prior: bool = False
    drop_missing: bool = False
    allow_new_levels: bool = False
    groups: str = KNOWN

    def __post_init__(self) -> None:
        check_interval(self.interval)
        check_groups(self.groups)

    @property
    def what(self) -> str:
        """The kind that is asked for, or that a part implies."""
        return self.kind or ("epred" if self.part == "all" else "linpred")


@dataclass(frozen=True, slots=True)
class EffectOptions(_Options):
    """Of which kind an effect is, and over what.

    Attributes
    ----------
    kind : str
        ``pd`` (partial dependence: the mean over rows) or ``conditional`` (all other columns
        at their mean or first level, or ``at`` given values).
    at : mapping
        Values at which a conditional effect holds other columns.
    scale : str
        ``response`` (mu, or the probability of each category) or ``linpred`` (eta, of an unordered
        response the log odds of its second category).
    resolution : int, optional
        Points of a numeric column; 25, or 15 where two columns vary. A column of few whole
        numbers has these instead.
    rows : int
        Most rows over which partial dependence is averaged, drawn by the seed.
    curves : int
        How many of them are kept as individual curves.
    category : str, optional
        One category of the response, instead of all.
    seed : int
        Draws the rows.
    groups : str
        What the effects of groups are, as of ``PredictOptions``.

    Raises
    ------
    InputError
        If the kind is unknown, or columns are held that partial dependence does not hold.
    """

    kind: str = "pd"
    at: Mapping[str, Any] = field(default_factory=dict)
    scale: str = "response"
    resolution: int | None = None
    rows: int = 1000
    curves: int = 0
    category: str | None = None
    seed: int = 1
    groups: str = KNOWN

    def __post_init__(self) -> None:
        check_groups(self.groups)
        kinds = ("pd", "conditional")
        if self.kind not in kinds:
            raise InputError(
                f"unknown kind of effect '{self.kind}'.{did_you_mean(self.kind, kinds)}"
            )
        if self.at and self.kind == "pd":
            raise InputError(
                "only a conditional effect holds columns at given values: --kind conditional"
            )
