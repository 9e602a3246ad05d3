"""Posterior draws, read from the CSV files of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from semistan.errors import InputError
from semistan.infer.method import Method
from semistan.infer.methods import method_named, method_of, reservations
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.completion import PSI
from semistan.model.config import SampleConfig
from semistan.model.design import Design
from semistan.model.families.ordinal import intercept_names
from semistan.model.layout import column_names
from semistan.model.orthogonal import INTERCEPT, further_names
from semistan.model.priors.r2d2 import R2
from semistan.model.priors.weight_scales import SD_W
from semistan.model.streams import Streams
from semistan.model.table.rows import evenly_spaced
from semistan.model.terms.term import element_labels
from semistan.posterior.chain_csv import ChainForm, copied, read_chain
from semistan.posterior.options import KNOWN
from semistan.posterior.orthogonal import STORED, Orthogonal, network_along, read_gamma
from semistan.posterior.run import Run

SEED = 1  # of what is drawn beside the draws, unless a seed is asked for


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Draws of one run; the first two axes are chains C and iterations S.

    Attributes
    ----------
    phi : array, shape (C, S, k)
        Subspace coordinates.
    theta : array, shape (C, S, P)
        What multiplies x beside the network as it is, in the user's units.
    coefficients : dict of arrays, shape (C, S)
        The intercept, or thresholds, and the structured coefficients by name, orthogonalised
        ones besides, and those of dispersion parameters.
    dispersion : dict of arrays, shape (C, S)
        Dispersion parameters by name, those without a predictor.
    lprior : array, shape (C, S)
        Log prior density.
    sampler : dict of arrays, shape (C, S)
        What the method reports, under ArviZ's names; see ``Method.columns``.
    max_treedepth : int
        The limit on NUTS's tree depth; 0 where nothing was sampled.
    method : Method
        How the draws were made.
    reservations : tuple of str
        What keeps them from being draws of the posterior.
    orthogonal : Orthogonal, optional
        What of the network the orthogonalised coefficients hold, if there are any.
    spread : dict of arrays, shape (C, S)
        Standard deviations, correlations and the like of the terms by name.
    terms : dict of arrays, shape (C, S, ...)
        What the terms' parameters make, as the coefficients of smooths and groups, by name.
    around : array, shape (C, k), optional
        Coordinates around which the network is linear in each chain; without them it is as it is.
    sd_w : array, shape (C, S, G), optional
        Factors of the weights' standard deviations by group, if they are sampled.
    psi : array, shape (C, S, K), optional
        Coordinates outside the subspace, if it is completed.
    seed : tuple of int
        Of what is drawn beside them, as the effects of new levels.
    groups : str
        What the effects of groups are in predictions: ``known``, ``new``, ``none`` or ``marginal``.
    first : int
        Number of the first chain, from 0, where they are some of several.
    """

    phi: Array
    theta: Array
    coefficients: dict[str, Array]
    dispersion: dict[str, Array]
    lprior: Array
    sampler: dict[str, Array]
    max_treedepth: int
    method: Method = field(default_factory=lambda: method_named("nuts"))
    reservations: tuple[str, ...] = ()
    orthogonal: Orthogonal | None = None
    spread: dict[str, Array] = field(default_factory=dict)
    terms: dict[str, Array] = field(default_factory=dict)
    around: Array | None = None
    sd_w: Array | None = None
    psi: Array | None = None
    seed: tuple[int, ...] = (SEED,)
    groups: str = KNOWN
    first: int = 0

    @property
    def chains(self) -> int:
        """Number of chains C."""
        return len(self.phi)

    @property
    def size(self) -> int:
        """Number of draws over all chains."""
        return len(self.flat(self.phi))

    @property
    def interpreted(self) -> dict[str, Array]:
        """Spread, coefficients and dispersion parameters by name, in the table's order."""
        return {**self.spread, **self.coefficients, **self.dispersion}

    @property
    def identified(self) -> dict[str, Array]:
        """Those of them that are identified, on which convergence is judged."""
        left_out = self.orthogonal.unidentified if self.orthogonal else ()
        return {name: x for name, x in self.interpreted.items() if name not in left_out}

    @property
    def effects(self) -> Array:
        """The structured part's coefficients (C, S, P): orthogonalised where they are."""
        return self.orthogonal.added(self.theta) if self.orthogonal else self.theta

    @property
    def of_terms(self) -> dict[str, Array]:
        """What the terms have and make, by name, (C * S, ...)."""
        return {name: self.flat(x) for name, x in {**self.spread, **self.terms}.items()}

    @property
    def streams(self) -> Streams:
        """The random numbers of what is drawn beside them."""
        return Streams(self.seed, self.first, *self.phi.shape[:2])

    def __repr__(self) -> str:
        names = ", ".join(self.interpreted)
        return (
            f"Draws: {self.chains} chains x {self.phi.shape[1]} of {names}, "
            f"phi ({self.phi.shape[-1]})"
        )

    def flat(self, values: Array) -> Array:
        """Merge the first two axes, chain after chain."""
        return values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])

    def thin(self, size: int) -> Draws:
        """Keep about ``size`` draws in all, at even distances in every chain."""
        index = evenly_spaced(self.phi.shape[1], max(1, size // self.chains))
        return self._part((slice(None), index))

    def chain(self, number: int) -> Draws:
        """Keep one chain, counted from 0, which stays on the first axis."""
        one = slice(number, number + 1)
        around = None if self.around is None else self.around[one]
        return replace(self._part((one,)), around=around, first=self.first + number)

    def _part(self, where: tuple[slice | np.ndarray, ...]) -> Draws:
        def some(values: dict[str, Array]) -> dict[str, Array]:
            return {name: array[where] for name, array in values.items()}

        return replace(
            self, phi=self.phi[where], theta=self.theta[where],
            coefficients=some(self.coefficients), dispersion=some(self.dispersion),
            lprior=self.lprior[where], sampler=some(self.sampler),
            orthogonal=self.orthogonal and self.orthogonal.part(where),
            spread=some(self.spread), terms=some(self.terms),
            sd_w=None if self.sd_w is None else self.sd_w[where],
            psi=None if self.psi is None else self.psi[where],
        )  # fmt: skip


def read_draws(run: Run) -> Draws:
    """Read a run's draws.

    Raises
    ------
    InputError
        If a chain is missing, was changed, or is not what the run's method writes.
    """
    files, bundle, method = read_chains(run), run.bundle, method_of(run.options)
    chains = [_lines(file, slice(method.lines_before, None)) for file in files]
    if run.prior_only:  # nothing moves without a likelihood
        bundle = replace(bundle, trained=replace(bundle.trained, completion=None))
    draws = draws_of_columns(bundle, chains, run.options)
    if method.linearised:
        first = _Columns([_lines(file, slice(1)) for file in files])
        draws = replace(draws, around=first.vector("phi", bundle.subspace.k)[:, 0])
    columns = bundle.model.orthogonal
    if not columns or draws.orthogonal:
        return draws
    kept = run.path / STORED if run.seal().state(STORED).ok else None
    gamma = read_gamma(kept, draws.phi, columns) if kept else None
    if gamma is None:
        rows = run.rows()
        gamma = np.concatenate(
            [
                network_along(own, rows, some.phi, columns, some.psi)
                for own, some in by_network(bundle, draws)
            ]
        )
    return orthogonalised(bundle, draws, gamma)


def read_chains(run: Run) -> list[dict[str, Array]]:
    """Read the columns of the chains of a run of one subspace.

    Raises
    ------
    InputError
        As ``read_draws``.
    """
    run.check_complete()
    names, form = run.chain_names, chain_form(run)
    known = run.seal().verify(*names, remedy=run.remedy)
    chains = [
        read_chain(run.path / name, form, known=name in known, remedy=run.remedy) for name in names
    ]
    if (copy := copied(chains)) is not None:
        one, other = copy
        raise InputError(f"'{run.path / names[other]}' is a copy of {names[one]}; {run.remedy}")
    return chains


def chain_form(run: Run) -> ChainForm:
    """Return what the chains of a run must have."""
    method = method_of(run.options)
    return ChainForm(
        method.lines_before + run.options.per_chain,
        lambda chain: draws_of_columns(run.bundle, [chain], run.options),
    )


def draws_of_columns(
    bundle: Bundle, chains: Sequence[Mapping[str, Array]], options: SampleConfig
) -> Draws:
    """Collect draws from the columns that the program writes, given for each chain by name."""
    design, method, columns = bundle.design, method_of(options), _Columns(chains)
    sheared, depth = bundle.model.samples_orthogonal, options.max_treedepth
    groups = bundle.model.weight_scales
    draws = Draws(
        phi=columns.vector("phi", bundle.subspace.k),
        theta=columns.vector("theta_raw" if sheared else "theta", len(design.coefficients)),
        coefficients=columns.scalars(_coefficient_columns(bundle)),
        dispersion=columns.scalars({name: name for name in bundle.model.scalars}),
        lprior=columns.scalar("lprior"),
        sampler=columns.scalars(method.columns),
        max_treedepth=0 if depth == "auto" else depth,
        method=method,
        reservations=reservations(options),
        spread=columns.scalars(_spread_columns(bundle)),
        terms={
            name: columns.array(name, shape)
            for term in design.terms
            for name, shape in term.made_shapes.items()
        },
        sd_w=columns.vector(SD_W, len(groups.names)) if groups else None,
    )
    if bundle.completion and f"{PSI}.1" in chains[0]:
        return completed(bundle, draws, columns.vector(PSI, bundle.completion.K))
    if not sheared:
        return draws
    further = tuple(further_names(bundle.config, design))
    orthogonal, theta = bundle.model.orthogonal, columns.vector("theta", len(design.x.loc))
    gamma = (theta - draws.theta)[..., list(orthogonal)]
    return replace(draws, orthogonal=Orthogonal(orthogonal, gamma, True, further))


def completed(bundle: Bundle, draws: Draws, psi: Array) -> Draws:
    """Complete draws by the weights outside the subspace, at coordinates psi (C, S, K).

    Intercepts and coefficients by their names are those of the program's file, and completed there.
    """
    completion, design = bundle.completion, bundle.design
    assert completion is not None
    change = {name: completion.change(name, psi) for name in completion.others}
    theta = draws.theta + change.get(design.mean.theta, 0.0)
    of_terms = {name: _shaped(change[name], made.shape) for name, made in draws.terms.items()}
    spread = dict(draws.spread)
    for shown, column in _term_columns(design).items():
        spread[shown] = spread[shown] + _change_of(column, change, of_terms)
    terms = {name: made + of_terms[name] for name, made in draws.terms.items()}
    return replace(draws, theta=theta, terms=terms, spread=spread, psi=psi)


def _shaped(values: Array, shape: tuple[int, ...]) -> Array:
    """Return elements (C, S, size) in the order of their columns as an array (C, S, ...)."""
    axes = range(len(shape) - 1, 1, -1)
    return values.reshape(*shape[:2], *shape[2:][::-1]).transpose(0, 1, *axes)


def _change_of(
    column: str, change: Mapping[str, Array], terms: Mapping[str, Array]
) -> Array | float:
    """Return how a reported column changes: a parameter, or an element of what terms make."""
    name = column.split(".")[0]
    if name in terms:
        return _element(column, terms)
    return change[name][..., 0] if name in change else 0.0


def _element(column: str, terms: Mapping[str, Array]) -> Array:
    """Return the element (C, S) of what terms make that a column has."""
    name, *numbers = column.split(".")
    every: tuple[slice | int, ...] = (slice(None), slice(None))
    return terms[name][every + tuple(int(number) - 1 for number in numbers)]


def table_columns(bundle: Bundle) -> dict[str, str]:
    """Map names in the coefficient table, in its order, to columns of the chains that have them.

    Those are missing that no program writes: coefficients orthogonalised afterwards.
    """
    scalars = {name: name for name in bundle.model.scalars}
    return _spread_columns(bundle) | _coefficient_columns(bundle) | scalars


def _coefficient_columns(bundle: Bundle) -> dict[str, str]:
    """Return the program's columns of intercepts, or thresholds, and coefficients."""
    design, K = bundle.design, bundle.family.reported_categories
    written = column_names(design.intercept, (K - 1,) if K else ())
    raw = further_names(bundle.config, design) if bundle.model.samples_orthogonal else ()
    varying = (name for item in design.others for name in item.names)
    intercepts = dict(zip(intercept_names(K, design.intercept), written, strict=True))
    return intercepts | {name: name for name in (*design.mean.names[1:], *raw, *varying)}


def _spread_columns(bundle: Bundle) -> dict[str, str]:
    """Return the program's columns of what the coefficients' prior and terms report."""
    own = {R2: R2} if bundle.model.explained else {}
    return own | _term_columns(bundle.design)


def _term_columns(design: Design) -> dict[str, str]:
    """Return the program's columns of what terms report; elements have names of their own."""
    found: dict[str, str] = {}
    for term in design.terms:
        elements = {shown: column for column, shown in element_labels(term).items()}
        found |= {name: elements.get(name, name) for name in term.reported}
    return found


def level_columns(design: Design) -> dict[str, str]:
    """Map columns of the effects of levels, which are not in the table, to their names."""
    return {
        column: shown
        for term in design.terms
        for column, shown in element_labels(term).items()
        if shown not in term.reported
    }


def level_effects(design: Design, draws: Draws) -> dict[str, Array]:
    """Return the effects of levels (C, S) by name, as ``r_g[a,Intercept]``."""
    columns = level_columns(design).items()
    return {shown: _element(column, draws.terms) for column, shown in columns}


def level(bundle: Bundle, draws: Draws) -> Array:
    """Return the intercept (C, S) that goes with ``effects``, or minus the first threshold."""
    K, orthogonal = bundle.family.reported_categories, draws.orthogonal
    moved = orthogonal is not None and not orthogonal.in_model
    first, *_ = intercept_names(K, INTERCEPT if moved else bundle.design.intercept)
    return -draws.coefficients[first] if K else draws.coefficients[first]


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The columns of several chains as arrays, whose first two axes are chains and draws."""

    chains: Sequence[Mapping[str, Array]]

    def scalar(self, name: str) -> Array:
        """Return one column (C, S)."""
        return np.stack([chain[name] for chain in self.chains])

    def scalars(self, columns: Mapping[str, str]) -> dict[str, Array]:
        """Return columns (C, S) under other names."""
        return {name: self.scalar(column) for name, column in columns.items()}

    def vector(self, name: str, size: int) -> Array:
        """Return a vector's elements (C, S, size)."""
        return self.array(name, (size,))

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return an array's elements (C, S, *shape)."""
        size = self.scalar("lprior").shape
        found, every = np.zeros((*size, *shape)), (slice(None), slice(None))
        for column, position in column_names(name, shape).items():
            found[every + position] = self.scalar(column)
        return found


def orthogonalised(bundle: Bundle, draws: Draws, gamma: Array) -> Draws:
    """Add coefficients that hold what the network says along their columns.

    Parameters
    ----------
    bundle : Bundle
        The trained model, whose configuration says which columns.
    draws : Draws
        Draws of a program that samples what multiplies x beside the network as it is.
    gamma : array, shape (C, S, p)
        From ``network_along``.

    Returns
    -------
    Draws
        With ``b_x_orth`` of these columns, and ``b_Intercept_orth``, which goes with them: one, or
        the thresholds of ordered categories.
    """
    further = further_names(bundle.config, bundle.design)
    columns = tuple(further.values())
    K, name = bundle.family.reported_categories, bundle.design.intercept
    intercepts = intercept_names(K, name)
    names = (*intercepts, *(bundle.design.coefficients[j] for j in columns))
    orthogonal = Orthogonal(columns, gamma, False, names)
    total = orthogonal.added(draws.theta)
    shift = gamma @ bundle.units.x_loc[list(columns)]
    added = {
        moved: draws.coefficients[plain] + (shift if K else -shift)
        for moved, plain in zip(intercept_names(K, INTERCEPT), intercepts, strict=True)
    }
    added |= {name: total[..., j] for name, j in further.items()}
    return replace(draws, coefficients=draws.coefficients | added, orthogonal=orthogonal)


def by_network(bundle: Bundle, draws: Draws) -> list[tuple[Bundle, Draws]]:
    """Return the draws with their network: each chain's own where it is linearised."""
    if draws.around is None:
        return [(bundle, draws)]
    chains = enumerate(draws.around)
    return [(bundle.linearised(phi), draws.chain(number)) for number, phi in chains]


def _lines(columns: dict[str, Array], which: slice) -> dict[str, Array]:
    return {name: values[which] for name, values in columns.items()}


def draw_index(chains: int, iterations: int) -> dict[str, np.ndarray]:
    """Return ``.chain``, ``.iteration`` and ``.draw`` of all draws, chain after chain."""
    return {
        ".chain": np.repeat(np.arange(1, chains + 1), iterations),
        ".iteration": np.tile(np.arange(1, iterations + 1), chains),
        ".draw": np.arange(1, chains * iterations + 1),
    }
