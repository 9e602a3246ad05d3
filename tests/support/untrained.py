"""Bundles with random weights and a fixed random subspace, made without training."""

from dataclasses import replace

import numpy as np
import pandas as pd

from semistan.bundle.bundle import library_versions
from semistan.model.bundle import Bundle
from semistan.model.completion import Completion
from semistan.model.config import parse_config
from semistan.model.design import learn_design
from semistan.model.families.categorical import with_levels
from semistan.model.families.families import family
from semistan.model.families.measured import with_errors
from semistan.model.formula.formula import parse_formula
from semistan.model.model import whole_networks
from semistan.model.names import MU
from semistan.model.networks.networks import output_layers
from semistan.model.subspace import Subspace
from semistan.model.table.rows import Columns, Rows
from semistan.model.trained import Source, Trained
from semistan.model.units import units_of
from semistan.subspace.blocks import by_network
from semistan.subspace.curve import arc_length
from semistan.subspace.span import span
from semistan.subspace.start_values import curve_states

FORMULA = "y ~ x1 + x2 + nn(u1, u2, u3)"
OF_TRIALS = "y | trials(tries) ~ x1 + x2 + nn(u1, u2, u3)"
MULTINOMIAL = "multinomial(bus, car, train)"
DIRICHLET = "dirichlet(bus, car, train)"
FORMULAS = {
    "binomial": OF_TRIALS, "beta_binomial": OF_TRIALS,
    MULTINOMIAL: "cbind(bus, car, train) | trials(tries) ~ x1 + nn(u1, u2, u3)",
    DIRICHLET: "cbind(bus, car, train) ~ x1 + nn(u1, u2, u3)",
}  # fmt: skip  # others have the plain one
TRIALS = np.array([3, 8, 20])
CENSORED = np.array(["none", "right", "none", "left", "interval", "right", "none"])
COX = "cox(0.5, 5, 9, 30)"
CATEGORICAL = "categorical(bus, car, train)"
CATEGORIES = np.array([0, 1, 0, 2, 1, 0, 3])  # of each row in turn, some more often than others

# The covariances of the levels of g, and of one that no row has.
RELATED = {"A.csv": pd.DataFrame(0.5 + 0.5 * np.diag([1, 1, 1.2, 1, 3]), columns=[*"dcbae"])}


def random_frame(name, generator, n=30):
    frame = pd.DataFrame(
        generator.normal((5, -2, 0, 3, 1), (2, 0.5, 1, 4, 0.1), size=(n, 5)),
        columns=["x1", "x2", "u1", "u2", "u3"],
    )
    levels = np.array(family(name).levels or ("",))
    responses = {
        "gaussian": generator.normal(100, 20, size=n),
        "poisson": generator.poisson(4, size=n).astype(float),
        "bernoulli": np.arange(n) % 2.0,
        "negbinomial": np.random.default_rng(1).poisson(4, size=n).astype(float),
        "student": np.random.default_rng(1).normal(100, 20, size=n),
        "lognormal": np.random.default_rng(1).lognormal(2, 1, size=n),
        "gamma": np.random.default_rng(1).lognormal(2, 1, size=n),
        "cumulative": np.arange(n) % 4 + 1.0,
        "categorical": levels[CATEGORIES[np.arange(n) % 7] % len(levels)],
        "beta": np.random.default_rng(1).uniform(0.05, 0.95, size=n),
        "binomial": np.random.default_rng(1).binomial(TRIALS[np.arange(n) % 3], 0.4).astype(float),
        "von_mises": np.random.default_rng(1).vonmises(0.3, 2, size=n),
        "asym_laplace": np.random.default_rng(1).normal(100, 20, size=n),
        "skew_normal": np.random.default_rng(1).normal(100, 20, size=n),
        "weibull": np.random.default_rng(1).lognormal(2, 1, size=n),
        "exponential": np.random.default_rng(1).lognormal(2, 1, size=n),
        "zero_one_inflated_beta": np.random.default_rng(1).uniform(-0.2, 1.2, n).clip(0, 1),
    }
    responses["beta_binomial"] = responses["binomial"]
    responses["cox"] = responses["weibull"]
    responses["sratio"] = responses["acat"] = responses["cumulative"]
    responses["hurdle_gamma"] = responses["gamma"] * (np.arange(n) % 4 > 0)
    responses["hurdle_lognormal"] = responses["hurdle_gamma"]
    if "zi" in family(name).dispersion or "hu" in family(name).dispersion:
        responses["poisson"] = responses["negbinomial"] * (np.arange(n) % 4 > 0)
    y = responses.get(family(name).name, responses["poisson"])
    if not family(name).levels:
        frame = frame.assign(
            least=np.floor(y) - np.arange(n) % 3, most=np.ceil(y) + np.arange(n) % 2
        )
    if family(name).counted:
        drawn = np.random.default_rng(1)
        counts = drawn.multinomial(TRIALS[np.arange(n) % 3], [0.5, 0.2, 0.3])
        columns = drawn.dirichlet([4, 1, 2], size=n) if family(name).composed else counts
        frame = frame.assign(bus=columns[:, 0], car=columns[:, 1], train=columns[:, 2])
    apart = np.random.default_rng(2)
    frame = frame.assign(c=CENSORED[np.arange(n) % 7], y2=1e4, late=2e4)
    return frame.assign(
        y=y,
        tries=TRIALS[np.arange(n) % 3], w=apart.uniform(0.5, 2, n),
        z=apart.normal(-0.5, 0.3, n), g=np.array(["c", "a", "b", "d"])[np.arange(n) % 4],
        h=np.arange(n) // 5, t=np.array(["a", "b"])[np.arange(n) // 5 % 2], v=apart.normal(3, 2, n),
        e=np.where(np.arange(n) % 5 == 2, np.nan, apart.normal(50, 3, n)),
    )  # fmt: skip


def random_bundle(
    name, *, formula=None, n=30, hidden=(4,), activation="tanh", frozen=0, k=3, seed=0,
    **settings,
):  # fmt: skip
    """Return a bundle and its rows; ``settings`` are sections of the configuration.

    The family categorical has its categories in ``name``, as ``CATEGORICAL``. Where weights move
    by themselves, they are random ones, and each coordinate has a scale of its own.
    """
    generator = np.random.default_rng(seed)
    network = {"hidden": hidden, "activation": activation, "frozen": frozen}
    record, parsed = family(name), parse_formula(formula or FORMULAS.get(name, FORMULA))
    if record.levels:
        parsed = with_levels(parsed, record.levels)
    config = parse_config(
        {"formula": parsed.text, "family": name, "network": network, "subspace": {"k": k}}
        | settings
        | {"priors": {"phi": "normal(0, 5)"} | settings.get("priors", {})},
        "test",
    )
    record = with_errors(record, parsed)
    links = {item.name: item.link for item in record.parameters}
    frame = random_frame(name, generator, n)
    design, rows = learn_design(parsed, frame, record.levels, links, RELATED)
    units = units_of(design, record, rows)
    leading = whole_networks(config, design)
    spec = leading.heads
    points = generator.normal(scale=0.7, size=(k + 1, spec.d))
    subspace, singular_values = by_network(spec, *span(points, k, "random points"))
    moves = config.subspace.moves
    if moves != "directions":
        count = {"both": 1, "axes": k, "all": spec.d}[moves]
        axes, Pi = np.arange(spec.d), subspace.Pi[:, count if moves == "both" else subspace.k :]
        if moves != "all":
            free = output_layers(spec)[0][-1:]  # as it would be; otherwise any weights
            chosen = np.random.default_rng(seed).permutation(axes)[:count]
            axes = free if moves == "both" and record.is_normal else chosen
        scale = np.linspace(0.5, 2, count + Pi.shape[1])
        subspace = Subspace(subspace.p_bar, Pi, "random axes", scale, axes)
    if config.subspace.holds_theta:
        subspace = replace(
            subspace, theta_bar=units.theta_scale * generator.normal(size=2),
            theta_Pi=units.theta_scale[:, None] * generator.normal(size=(2, k)),
        )  # fmt: skip
    trained = Trained(
        subspace=subspace,
        singular_values=singular_values,
        control_points=points,
        **random_layers(leading, generator),
        linear=random_linear(units, generator),
        terms=random_terms(design, units),
        dispersion={
            item.name: item.moved(units.start(item), np.log(0.8)) for item in record.parameters
        },
        history={},
        curve={},
        arc_length=arc_length(points),
    )
    source = Source(None, len(rows), 0)
    bundle = Bundle(config, design, units, trained, source, library_versions())
    return replace(bundle, trained=replace(trained, information=random_information(bundle))), rows


def completed_bundle(name, K=3, **arguments):
    """Return an untrained bundle with a random completion of its subspace, and its rows."""
    bundle, rows = random_bundle(name, **arguments)
    priors = bundle.config.priors.model_copy(update={"phi": None})
    k = bundle.subspace.k
    bundle = replace(
        bundle, config=bundle.config.model_copy(update={"priors": priors}),
        trained=replace(
            bundle.trained, subspace=replace(bundle.subspace, phi_location=np.zeros(k))
        ),
    )  # fmt: skip
    generator, design, d = np.random.default_rng(6), bundle.design, bundle.subspace.d
    sizes = {p.theta: len(p.coefficients) for p in design.predictors if p.coefficients}
    sizes |= {p.intercept: 1 for p in design.predictors}
    sizes |= {p.tau: 1 for p in design.predictors if p.has_tau}
    sizes |= {slope.name: 1 for slope in design.slopes}
    for term in design.terms:
        sizes |= {made: np.prod(shape) for made, shape in term.made_shapes.items()}
    moved = {made: 0.2 * generator.normal(size=(int(n), 1 + K)) for made, n in sizes.items()}
    for p in design.predictors:
        if p.has_tau:  # the intercept, moved to X = 0
            moved[p.intercept] = bundle.units.scale(p.name) * moved[p.tau]
            if p.coefficients:
                moved[p.intercept] -= bundle.units.columns[p.name][0] @ moved[p.theta]
    at = bundle.subspace.p_bar + 0.1 * generator.normal(size=d)
    found = Completion(
        at, 0.2 * generator.normal(size=(d, 1 + K)), moved, np.linspace(0.9, 0.1, K), 0.99, 0.5
    )
    return replace(bundle, trained=replace(bundle.trained, completion=found)), rows


def random_information(bundle):
    """Return what rows might say of each standardised coefficient, from nothing to much."""
    generator, found = np.random.default_rng(0), {}
    for p in bundle.layout.centred:
        shape = p.centring.shape
        found[p.name] = generator.exponential(size=shape) * generator.integers(0, 4, shape)
        if len(shape) == 3:  # a covariance for each level
            found[p.name] = found[p.name] @ np.swapaxes(found[p.name], 1, 2)
    return found


def random_layers(leading, generator):
    """Return constant weights and the units of the features, if there are constant layers."""
    w_frozen, m = generator.normal(scale=0.7, size=sum(leading.sizes)), leading.heads.n_inputs
    if not leading.any:
        return {"w_frozen": w_frozen}
    apart = np.random.default_rng(5)
    loc, scale = apart.normal(scale=0.3, size=m), apart.uniform(0.5, 2, size=m)
    multiplied = list(leading.heads.multipliers.values())
    loc[multiplied], scale[multiplied] = 0.0, 1.0
    return {"w_frozen": w_frozen, "h_loc": loc, "h_scale": scale}


def random_linear(units, generator):
    linear = {MU: units.theta_scale * generator.normal(size=len(units.x_loc))}
    for name, (_, scale) in units.columns.items():
        if name != MU:
            linear[name] = np.random.default_rng(4).normal(size=len(scale)) / scale
    return linear


def random_terms(design, units):
    found = {}
    for predictor in design.predictors:
        scales = [term.training_units(units.scale(predictor.name)) for term in predictor.terms]
        scale = np.concatenate([np.zeros(0), *scales])
        found[predictor.name] = scale * np.random.default_rng(3).normal(size=len(scale))
    return found


def plain_units(bundle):
    """Return the bundle with every location 0 and scale 1, so that priors need no data."""
    units = bundle.units
    columns = {name: (0 * loc, 1 + 0 * scale) for name, (loc, scale) in units.columns.items()}
    plain = replace(
        units, columns=columns, u_loc=0 * units.u_loc, u_scale=1 + 0 * units.u_scale,
        eta_loc=0.0, eta_scale=1.0, locations=dict.fromkeys(units.locations, 0.0),
    )  # fmt: skip
    return replace(bundle, units=plain)


def standard_rows(generator, n, name="gaussian"):
    """Rows with standard normal X and U and no response, in a family's experiments."""
    given = {"trials": TRIALS[np.arange(n) % 3]} if "trials" in family(name).given else {}
    return Rows(
        None, {MU: Columns(generator.normal(size=(n, 2)))}, generator.normal(size=(n, 3)),
        tuple(range(n)), given=given,
    )  # fmt: skip


def states(bundle, n=4):
    """Return unconstrained states (n, q) near the trained curve."""
    return curve_states(bundle, n) + 0.1 * np.random.default_rng(1).normal(size=(n, 1))


SHARED = "y ~ x1 + x2 + nn(x1, u1, u2)"
LINEAR = {"activation": "identity", "hidden": ()}


def shared_bundle(
    name="gaussian", formula=SHARED, *, rows=30, mode="auto", where="posterior", **arguments
):
    """Return an untrained bundle whose network sees x1, and which u1 and u2 resemble, with rows."""
    bundle, _ = random_bundle(name, **arguments)
    frame = random_frame(name, np.random.default_rng(3), rows)
    frame = frame.assign(u1=frame.u1 + 0.4 * frame.x1, u2=frame.u2 - 2 * frame.x2)
    design, learnt = learn_design(parse_formula(formula), frame)
    plain = bundle.config.model_dump() | {"formula": formula, "orthogonalise": mode}
    config = parse_config(plain | {"orthogonalise_in": where}, "test")
    units = units_of(design, bundle.family, learnt)
    theta = units.theta_scale * np.linspace(0.5, 2, len(design.coefficients))
    trained = replace(bundle.trained, linear={MU: theta})
    return Bundle(config, design, units, trained, bundle.source, bundle.versions), learnt


VARIANTS = [  # family, prior on b, and how theta is integrated out
    ("gaussian", "normal(1, 2)", "exact"),
    ("gaussian", "student_t(3, 1, 2)", "laplace"),
    ("poisson", "normal(0, 2)", "laplace"),
    ("bernoulli", "cauchy(0, 1)", "laplace"),
]


def tempered(name, temperature, temper, prior_b="normal(0, 2.5)", **arguments):
    """Return a bundle of a tempered model, and its rows."""
    settings = {"priors": {"b": prior_b}, **arguments}
    sample = {"temperature": temperature, "temper": temper}
    return random_bundle(name, sample=sample, **settings)
