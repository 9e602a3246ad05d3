"""Models whose programs cover every pair of what a program may be made of.

Tests that need a compiled program draw from here, so that each is compiled once: the sweep in
``tests/contracts/test_programs.py`` runs over all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from support.untrained import CATEGORICAL, COX, DIRICHLET, MULTINOMIAL, random_bundle

NETWORK = "nn(u1, u2, u3)"
TERMS = f"x1 + offset(z) + s(v, k=5) + (1 + x1 | g) + (1 | h) + {NETWORK}"
OTHER_PRIORS = {"b": "student_t(3, 1, 2)", "sigma": "exponential(0.5)"}
SCALES = {"phi": None, "sd_w": "student_t(4, 0, 1.5)"}
TRUNCATED = {"sigma": "student_t(4, 1, 0.7)"}
SHEARED = {"orthogonalise": "all", "orthogonalise_in": "model"}
NAIVE = {"subspace": {"construction": "naive", "k": 3}}
BOTH = {"feature": "axes", "subspace": {"free": "bias", "k": 3}}
AXES = {"feature": "axes", "subspace": {"construction": "subnetwork", "k": 3}}
PURE = {"sample": {"kernel": "stan"}}
ALL = {"feature": "axes", "subspace": {"construction": "full"}}


def tempered(temperature=2.5, temper="likelihood"):
    return {"sample": {"temperature": temperature, "temper": temper}}


@dataclass(frozen=True)
class Program:
    """A model, the kernel of its program, and what the pairs are made of.

    ``likelihood`` is the kind of family: one that the C++ kernel knows, one with dispersion
    alone, one with another link, or one of categories.
    """

    name: str
    make: Callable
    likelihood: str
    terms: frozenset
    kernel: str = "stan"
    temper: str = "none"
    feature: str = "plain"

    @property
    def levels(self):
        """The factors' levels that this program has."""
        return {
            ("likelihood", self.likelihood), ("kernel", self.kernel), ("temper", self.temper),
            ("feature", self.feature), *(("term", term) for term in self.terms),
        }  # fmt: skip

    def __str__(self):
        return self.name


def _program(name, family, likelihood, terms="linear", *, formula=None, kernel="stan",
             temper="none", feature="plain", **settings):  # fmt: skip
    make = partial(random_bundle, family, formula=formula, **settings)
    return Program(name, make, likelihood, frozenset(terms.split()), kernel, temper, feature)


PROGRAMS = (
    # the plain ones, which most tests use
    _program("gaussian", "gaussian", "kernel"),
    _program("gaussian, kernel", "gaussian", "kernel", kernel="cpp", **ALL,
             sample={"integrate": "none"}),
    _program("poisson", "poisson", "kernel", **BOTH, frozen=1, hidden=(4, 3)),
    _program("poisson, kernel", "poisson", "kernel", kernel="cpp", **BOTH),
    _program("bernoulli", "bernoulli", "kernel"),
    _program("bernoulli, kernel", "bernoulli", "kernel", kernel="cpp", **AXES),
    _program("binomial", "binomial", "kernel"),
    _program("negbinomial", "negbinomial", "dispersed"),
    _program("student", "student", "dispersed"),
    _program("lognormal", "lognormal", "dispersed", **AXES),
    _program("gamma", "gamma", "dispersed"),
    _program("beta", "beta", "dispersed"),
    _program("slant", "skew_normal", "dispersed", "linear predictor",
             formula=f"y ~ x1 + {NETWORK}, alpha ~ z"),
    _program("angles", "von_mises", "dispersed"),
    _program("quantiles", "asym_laplace", "dispersed", formula=f"y ~ x1 + {NETWORK}",
             priors={"quantile": "constant(0.8)"}),
    _program("censored, truncated", "weibull", "dispersed", "linear predictor",
             formula=f"y | cens(c, y2) + trunc(lb=least) ~ x1 + {NETWORK}, shape ~ z"),
    _program("baseline hazard", COX, "dispersed"),
    _program("baseline hazard, censored, truncated", "cox(piecewise, 0, 5, 9, 30)", "dispersed",
             "linear group", kernel="cpp",
             formula="y | cens(c, y2) + trunc(lb=least, ub=late) + weights(w) ~ x1 + (1 | g) "
                     f"+ {NETWORK}"),
    _program("baseline hazards of rows", COX, "dispersed", "linear predictor networks",
             formula=f"y | cens(c, y2) + trunc(lb=least) ~ x1 + {NETWORK}, "
                     "bhaz_2 ~ x2 + nn(u1), bhaz_4 ~ t"),
    _program("measured", "gaussian", "dispersed", formula=f"y | se(w) ~ x1 + {NETWORK}",
             kernel="cpp"),
    _program("measured, sigma", "student", "dispersed", "linear predictor",
             formula=f"y | se(w, sigma=TRUE) + weights(w) ~ x1 + {NETWORK}, sigma ~ z"),
    _program("measured, censored, truncated", "gaussian", "dispersed",
             formula=f"y | se(w, sigma=TRUE) + cens(c, y2) + trunc(lb=least) ~ x1 + {NETWORK}"),
    _program("effects across predictors", "student", "dispersed",
             "linear group predictor networks", kernel="cpp",
             formula=f"y | weights(w) ~ x1 + (1 + x2 | p | g) + {NETWORK}, "
                     "sigma ~ z + (1 | p | g), nu ~ (0 + v | p | g)"),
    _program("shares", "zero_one_inflated_beta", "dispersed", "linear group predictor networks",
             formula="y | weights(w) ~ x1 + nn(u1, u2), zoi ~ z + (1 | g), coi ~ nn(u3)"),
    _program("probit", "bernoulli(probit)", "link"),
    _program("log link", "gaussian(log)", "link", **ALL),
    _program("cumulative", "cumulative(logit, 4)", "categories"),
    _program("thresholds by row", "cumulative(logit, 4)", "categories",
             "linear group predictor networks",
             formula=f"y | weights(w) ~ x1 + (1 | g) + {NETWORK}, gap_2 ~ x2 + nn(u1)"),
    _program("thresholds by row, probit", "cumulative(probit, 4)", "categories", "linear predictor",
             formula=f"y ~ x1 + {NETWORK}, gap_2 ~ x2, gap_3 ~ t"),
    _program("thresholds by row, acat", "acat(logit, 4)", "categories", "linear predictor",
             formula=f"y ~ x1 + {NETWORK}, gap_2 ~ x2, gap_3 ~ t"),
    _program("categorical", CATEGORICAL, "categories", "linear predictor networks",
             formula=f"y ~ x1 + {NETWORK}", **BOTH),
    _program("multinomial", MULTINOMIAL, "categories",
             "linear offset smooth group predictor networks",
             formula="cbind(bus, car, train) | trials(tries) + weights(w) ~ x1 + s(v, k=4) "
                     f"+ (1 | g) + {NETWORK}, mutrain ~ z + offset(v) + nn(u1)"),
    _program("dirichlet", DIRICHLET, "categories",
             "linear smooth group predictor networks",
             formula="cbind(bus, car, train) | weights(w) ~ x1 + s(v, k=4) "
                     f"+ (1 | g) + {NETWORK}, mutrain ~ z + nn(u1), precision ~ x2"),
    _program("other priors", "gaussian", "kernel", priors=OTHER_PRIORS),
    _program("truncated prior", "gaussian", "kernel", priors=TRUNCATED, **AXES),
    _program("bounded coefficients", "gaussian", "kernel", "linear networks",
             formula="y ~ x1 + x2 + mo(h) + nn(u1) + nn(u2, u3)",
             priors={"b": "normal(0, 2), lb=-0.5", "bsp_moh": "normal(0, 1), ub=2"}, **ALL),
    _program("bounds of their own", "student", "dispersed", "linear predictor", kernel="cpp",
             formula=f"y | weights(w) ~ x1 + x2 + v + z + {NETWORK}, sigma ~ z + x2",
             priors={"b_x1": "exponential(1), lb=0", "b_v": "normal(0, 1), ub=1",
                     "b_z": "student_t(3, 0, 1), lb=-1, ub=0.5",
                     "b_sigma_z": "normal(0, 1), lb=0"}),
    _program("scales of weights", "gaussian", "kernel", **ALL, priors=SCALES),
    _program("scales of weights, kernel", "poisson", "kernel", "linear networks", kernel="cpp",
             **ALL, priors=SCALES, formula="y ~ x1 + mi(e) + nn(u1, u2) + nn(v), e | mi() ~ 1"),
    _program("scales of weights, integrated out, kernel", "gaussian", "kernel", "linear networks",
             kernel="cpp", **ALL, priors=SCALES,
             formula="y ~ x1 + mi(e) + nn(u1, u2) + z:nn(v), e | mi() ~ x1 + g"),
    # terms
    _program("every term", "binomial", "kernel", "linear offset smooth group",
             formula=f"y | trials(tries) + weights(w) ~ {TERMS}", **BOTH),
    _program("every term, kernel", "gaussian", "kernel", "linear offset smooth group",
             formula=f"y | weights(w) ~ {TERMS}", kernel="cpp", sample={"integrate": "none"}),
    _program("every term, tempered", "negbinomial", "dispersed",
             "linear offset smooth group networks predictor", temper="likelihood",
             formula=f"y ~ {TERMS} + nn(v), shape ~ x2 + nn(u3)", **tempered()),
    _program("every term, log link", "student(log)", "link",
             "linear offset smooth group networks predictor",
             formula=f"y ~ {TERMS} + nn(v, hidden=[2, 3], activation='relu'), sigma ~ z + nn(u3)"),
    _program("every term, cloglog", "bernoulli(cloglog)", "link", "linear offset smooth group",
             formula=f"y ~ {TERMS}", kernel="cpp", temper="likelihood", **tempered()),
    _program("every term, cumulative", "cumulative(probit, 4)", "categories",
             "linear offset smooth group", formula=f"y | weights(w) ~ {TERMS}", kernel="cpp",
             feature="sheared", temper="likelihood", **SHEARED, **tempered()),
    _program("every term, sheared", "gaussian", "kernel",
             "linear offset smooth group networks predictor", feature="sheared",
             formula=f"y ~ {TERMS} + nn(v), sigma ~ z", **SHEARED),
    _program("kinds of terms", "gaussian", "kernel", "linear smooth group networks predictor",
             formula="y ~ x1 + g + mi(e) + s(v, by=g, k=4) + s(w, by=z, k=4) + s(x2, bs='cc', k=5) "
                     "+ gp(u3, k=5) + gp(z, k=4, cov='matern25') + gp(v, by=g, k=3) "
                     "+ gp(u2, by=g, k=3, cov='matern25') + gp(u3, by=x2, k=4) "
                     "+ gp(u2, u3, by=g, k=200, cov='matern15') + gp(x2, v, k=80, cov='matern25') "
                     "+ (1 + v | mm(g, h, weights=cbind(w, tries))) "
                     "+ (1 + x1 | gr(g, cov='A.csv')) + nn(u1), "
                     "sigma ~ s(g, bs='re') + gp(x2, by=g, k=3, cov='matern15') "
                     "+ (1 + x2 || gr(h, by=t)) + (1 | mm(g, t)) + gp(v, k=4, cov='matern15') "
                     "+ mo(h) + t2(x1, v, k=[3, 4]) + gp(x1, v, k=40) + nn(u2), "
                     "e | mi() ~ g + x2"),
    _program("networks", "gaussian", "kernel", "linear networks predictor",
             formula="y ~ x1 + nn(u1, u2, hidden=[3, 2], activation='softplus') + nn(v), "
                     "sigma ~ z + nn(u2, u3, hidden=[])", kernel="cpp",
             **AXES, temper="likelihood", **tempered()),
    _program("shared layers", "student", "dispersed", "linear networks predictor",
             formula="y ~ x1 + nn(u1, u2, shared='f') + nn(v), sigma ~ z + nn(u1, u2, shared='f'), "
                     "nu ~ x2"),
    _program("shared layers, kernel", CATEGORICAL, "categories", "linear networks predictor",
             formula="y ~ x1 + nn(u1, u2, u3, shared='f')", kernel="cpp", feature="axes",
             subspace={"free": "output", "k": 3}),
    _program("network in C++", "negbinomial", "dispersed", "linear", kernel="cpp", frozen=1,
             formula="y ~ x1 + nn(u1, u2, u3)"),
    _program("residual and plain networks", "gaussian", "kernel", "linear networks predictor",
             formula="y ~ x1 + nn(u1, u2, hidden=[3, 3, 2], skip=True, norm=True) + nn(v), "
                     "sigma ~ z + nn(u3, hidden=[2, 2], skip=True, activation='softplus')"),
    # theta integrated out
    _program("exact integral", "gaussian", "kernel", "linear networks", temper="subspace",
             **ALL, priors={"b": "normal(1, 2)"},
             formula="y ~ x1 + nn(u1, u2) + nn(v)", **tempered(2.5, "subspace")),
    _program("Laplace's integral", "poisson", "kernel", temper="subspace",
             priors={"b": "normal(0, 2)"}, **tempered(2.5, "subspace")),
    # what is linear integrated out
    _program("output layers and theta", "gaussian", "kernel",
             "linear offset smooth group networks", **ALL, **PURE,
             formula=f"y | weights(w) ~ {TERMS} + nn(v, hidden=[2, 3], activation='relu')"),
    _program("output layer and theta, kernel", "gaussian", "kernel",
             "linear offset smooth", kernel="cpp", **ALL,
             formula=f"y | weights(w) ~ x1 + offset(z) + s(v, k=5) + {NETWORK}"),
    _program("output layer and theta, kernel, many rows", "gaussian", "kernel", kernel="cpp",
             n=5000, **ALL),
    _program("output layer and theta, constant layer", "gaussian", "kernel", frozen=1,
             hidden=(4, 3), priors={"b": "normal(3, 0.7)"}, **ALL),
    _program("output layer alone", "gaussian", "kernel", "", formula="y ~ nn(u1, u2)", **ALL),
    _program("output bias, theta sampled", "gaussian", "kernel", **BOTH,
             priors={"b": "student_t(3, 1, 2)"}, formula=f"y | weights(w) ~ x1 + {NETWORK}"),
    _program("terms integrated out", "gaussian", "kernel",
             "linear offset smooth group networks",
             formula="y | weights(w) ~ x1 + offset(z) + s(v, by=g, k=4) + gp(u3, k=5) "
                     "+ gp(z, by=g, k=3) + t2(x1, v, k=3) + (1 + x2 || g) + (1 + x1 | mm(g, h)) "
                     "+ (1 | gr(h, by=t)) + nn(u1) + nn(u2, u3)"),
    _program("terms and output layer integrated out, kernel, many rows", "gaussian", "kernel",
             "linear smooth group", kernel="cpp", n=5000, **ALL,
             formula=f"y | weights(w) ~ x1 + s(v, k=5) + gp(u3, k=6) + (1 | gr(g, cov='A.csv')) "
                     f"+ (1 + x1 + v | t) + {NETWORK}"),
    _program("terms integrated out, theta sampled, kernel", "gaussian", "kernel",
             "linear smooth group", kernel="cpp", priors={"b": "student_t(3, 1, 2)"},
             formula=f"y ~ x1 + s(z, k=4) + (1 | g) + (1 + x1 | h) + {NETWORK}"),
    _program("horseshoe integrated out", "gaussian", "kernel", "linear networks",
             priors={"b": "horseshoe(3)"}, formula="y | weights(w) ~ x1 + x2 + nn(u1) + nn(u2)"),
    _program("R2D2 integrated out, kernel", "gaussian", "kernel", "linear smooth networks", **ALL,
             priors={"phi": None, "b": "R2D2(0.4, 3)", "sds": "R2D2()", "sd_w": "R2D2()"},
             formula=f"y ~ x1 + x2 + s(v, k=4) + {NETWORK} + nn(u3)", kernel="cpp"),
    _program("R2D2 of groups and a process", "poisson", "kernel", "smooth group",
             priors={"sd": "R2D2(0.3, cons_D2=1)", "sdgp": "R2D2()"},
             formula=f"y ~ gp(v, k=4) + (1 + x1 | g) + {NETWORK}"),
    # theta in the subspace
    _program("naive", "poisson", "kernel", feature="naive", **NAIVE),
    _program("naive, kernel", "gaussian", "kernel", kernel="cpp", feature="naive", **NAIVE),
    _program("naive, tempered", "student", "dispersed", temper="likelihood", feature="naive",
             **NAIVE, **tempered()),
    _program("naive, probit", "bernoulli(probit)", "link", "linear offset", feature="naive",
             formula=f"y ~ x1 + x2 + offset(z) + {NETWORK}", **NAIVE),
    _program("naive, cumulative", "cumulative(logit, 4)", "categories", feature="naive", **NAIVE),
    # orthogonalised coefficients in the program
    _program("sheared", "bernoulli", "kernel", kernel="cpp", feature="sheared", **SHEARED),
    _program("sheared, integral", "poisson", "kernel", feature="sheared", temper="subspace",
             **SHEARED, **tempered(2.0, "subspace")),
    _program("sheared, gamma", "gamma", "dispersed", feature="sheared", temper="likelihood",
             **SHEARED, **tempered()),
    _program("sheared, probit", "bernoulli(probit)", "link", feature="sheared", **SHEARED),
    # networks that multiply a column
    _program("coefficients that are networks", "student", "dispersed", "linear networks predictor",
             formula="y | weights(w) ~ x1 + nn(u1, u2, hidden=[3, 2], activation='softplus') "
                     "+ z:nn(v) + t:nn(u3, hidden=[2]), sigma ~ z + x2:nn(u3)"),
    _program("coefficients that are networks, kernel", "poisson", "kernel", "linear networks",
             kernel="cpp", **BOTH, formula="y ~ x1 + nn(u1, u2) + z:nn(v)", frozen=1,
             hidden=(4, 3)),
    _program("coefficients that are networks, integrated out", "gaussian", "kernel",
             "linear networks", **ALL, **PURE,
             formula="y | weights(w) ~ x1 + nn(u1, u2) + t:nn(v, hidden=[2, 3])"),
    _program("coefficients that are networks, integrated out, kernel", "gaussian", "kernel",
             "linear offset smooth networks", kernel="cpp", **ALL,
             formula="y | weights(w) ~ x1 + offset(z) + s(v, k=5) + nn(u1, u2, hidden=[3]) "
                     "+ t:nn(v, hidden=[2, 3], activation='softplus')"),
    _program("networks in the kernel", "gaussian", "kernel", "linear smooth group networks", **BOTH,
             kernel="cpp", formula="y | weights(w) ~ x1 + (1 + v | g) + s(u1, k=4) + (1 + x2 | h) "
                     "+ nn(u1, u2) + nn(v) + z:nn(u3)"),
    _program("coefficients of categories that are networks", CATEGORICAL, "categories",
             "linear networks predictor", formula="y ~ x1 + nn(u1, u2) + z:nn(v)"),
    _program("a constant and a coefficient that is a network", "gaussian", "kernel",
             "linear networks", formula="y ~ x1 + z:nn(v)", **PURE, **ALL),
    _program("a constant and a coefficient that is a network, kernel", "bernoulli", "kernel",
             "linear networks", formula="y ~ x1 + z:nn(v, u1)", kernel="cpp"),
    _program("coefficients of ordered categories that are networks", "cumulative(logit, 4)",
             "categories", "linear networks", formula="y ~ x1 + nn(u1, u2) + z:nn(v)"),
)  # fmt: skip
