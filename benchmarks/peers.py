"""The same log density elsewhere: JAX and PyTorch for gradients, NumPyro and nutpie for NUTS.

An unconstrained state is q = (c, z, log sigma), with c = phi / phi_scale and
z = theta / theta_scale, as in the Stan program, so that every sampler moves in the same
coordinates with the same log density.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy import stats

from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.networks.mlp import FullyConnected, layer_slices
from semistan.model.subspace import Subspace
from semistan.model.table.rows import Rows

ONE_CORE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

Start = Mapping[str, Array]  # initial phi, theta and sigma of one chain
Chain = dict[str, Array]  # phi (S, k), theta (S, P) and sigma (S,) of one chain
Sampler = Callable[[Start, int], tuple[Chain, "Cost"]]  # from initial values and a seed
Evaluate = Callable[[Array], tuple[float, Array]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What chains took: CPU seconds, and the gradients of the draws that are kept."""

    warmup: float
    sampling: float
    gradients: int

    @property
    def seconds(self) -> float:
        """CPU seconds, warm-up included."""
        return self.warmup + self.sampling

    def of(self, seconds: float) -> Cost:
        """Return the same shares of other seconds."""
        share = self.warmup / self.seconds
        return Cost(share * seconds, (1 - share) * seconds, self.gradients)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.warmup + other.warmup,
            self.sampling + other.sampling,
            self.gradients + other.gradients,
        )


def installed(library: str) -> bool:
    """Say whether an optional peer can be imported."""
    return find_spec(library) is not None


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """The numbers of one log density: rows, subspace, units and priors.

    Attributes
    ----------
    y, Xc, Z : array, shapes (N,), (N, P), (N, Q)
        Response, centred structured design and standardised network inputs.
    subspace : Subspace
        Of which JAX and PyTorch add axes to the weights as they are, and multiply by Pi.
    network : FullyConnected
        The architecture.
    theta_scale : array, shape (P,)
        Units of the coefficients.
    eta_loc, eta_scale : float
        Units of the linear predictor.
    priors : mapping
        Arguments of the priors under their names in the program.
    """

    y: Array
    Xc: Array
    Z: Array
    subspace: Subspace
    network: FullyConnected
    theta_scale: Array
    eta_loc: float
    eta_scale: float
    priors: Mapping[str, Any]

    @property
    def k(self) -> int:
        """Dimension of the subspace."""
        return self.subspace.k

    @property
    def c_prior(self) -> tuple[Array, Array]:
        """Location and scale of phi / phi_scale, shapes (k,)."""
        location, scale = (self.priors[f"prior_phi_{name}"] for name in ("location", "scale"))
        return location / self.subspace.phi_scale, scale / self.subspace.phi_scale

    @property
    def z_prior(self) -> tuple[Array, Array]:
        """Location and scale of theta / theta_scale, shapes (P,)."""
        location, scale = (self.priors[f"prior_b_{name}"] for name in ("location", "scale"))
        return location / self.theta_scale, scale / self.theta_scale

    @property
    def sigma_prior(self) -> tuple[float, float, float]:
        """Degrees of freedom, location and scale of sigma's truncated Student t."""
        df, location, scale = (
            self.priors[f"prior_sigma_{name}"] for name in ("df", "location", "scale")
        )
        return df, location, scale

    @property
    def log_constant(self) -> float:
        """What no parameter enters: sigma's truncation."""
        return -float(stats.t.logsf(0, *self.sigma_prior))


def posterior_of(bundle: Bundle, rows: Rows) -> Posterior:
    """Collect the numbers from a bundle and its training rows."""
    units = bundle.units
    assert rows.y is not None
    return Posterior(
        y=rows.y,
        Xc=rows.X - units.x_loc,
        Z=(rows.U - units.u_loc) / units.u_scale,
        subspace=bundle.subspace,
        network=bundle.network.parts[0],
        theta_scale=units.theta_scale,
        eta_loc=units.eta_loc,
        eta_scale=units.eta_scale,
        priors=bundle.prior_data,
    )


# JAX


def one_core_jax() -> Any:
    """Import JAX in double precision on one core."""
    os.environ["XLA_FLAGS"] = ONE_CORE
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax


def jax_eta(posterior: Posterior, c: Any, z: Any) -> Any:
    """Return the linear predictor (N,) in JAX."""
    import jax.numpy as jnp
    from jax import nn

    activations = {
        "tanh": jnp.tanh,
        "relu": nn.relu,
        "softplus": nn.softplus,
        "sigmoid": nn.sigmoid,
        "identity": lambda z: z,
    }
    activation = activations[posterior.network.activation]
    subspace, a = posterior.subspace, len(posterior.subspace.axes)
    phi, theta = subspace.phi_scale * c, posterior.theta_scale * z
    w, h = jnp.asarray(subspace.p_bar), jnp.asarray(posterior.Z)
    if a:
        w = w.at[subspace.axes].add(phi[:a])
    if subspace.Pi.shape[1]:
        w = w + subspace.Pi @ phi[a:]
    layers = layer_slices(posterior.network.widths)
    for index, (weights, biases, m, n) in enumerate(layers, start=1):
        h = h @ w[weights].reshape(n, m).T + w[biases]
        h = activation(h) if index < len(layers) else h
    return posterior.eta_loc + posterior.eta_scale * h[:, 0] + posterior.Xc @ theta


def jax_log_density(posterior: Posterior) -> Callable[[Any], Any]:
    """Return the log density of an unconstrained state, to be compiled."""
    import jax.numpy as jnp
    from jax.scipy.stats import norm, t

    def log_density(q: Any) -> Any:
        c, z, sigma = q[: posterior.k], q[posterior.k : -1], jnp.exp(q[-1])
        eta = jax_eta(posterior, c, z)
        prior = (
            norm.logpdf(c, *posterior.c_prior).sum()
            + norm.logpdf(z, *posterior.z_prior).sum()
            + t.logpdf(sigma, *posterior.sigma_prior)
        )
        log_lik = norm.logpdf(posterior.y, eta, sigma).sum()
        return log_lik + prior + q[-1] + posterior.log_constant

    return log_density


class JaxGradient:
    """Gradients by ``jit(value_and_grad)``, called one by one or in a compiled loop."""

    def __init__(self, posterior: Posterior, q: Array) -> None:
        jax = one_core_jax()
        gradient = jax.value_and_grad(jax_log_density(posterior))

        def step(_: Any, state: Any) -> Any:
            value, slope = gradient(state[0])
            return state[0] + 1e-16 * slope, value  # a loop must not find its body constant

        self._q = jax.numpy.asarray(q)
        self._call = jax.jit(gradient)
        self._loop = jax.jit(lambda q, m: jax.lax.fori_loop(0, m, step, (q, 0.0)))

    def evaluate(self, q: Array) -> tuple[float, Array]:
        """Return the log density and its gradient."""
        value, gradient = self._call(q)
        return float(value), np.asarray(gradient)

    def seconds(self, evaluations: int) -> float:
        """Return the seconds that so many calls take."""
        started = time.perf_counter()
        for _ in range(evaluations):
            self._call(self._q)[1].block_until_ready()
        return time.perf_counter() - started

    def seconds_in_loop(self, evaluations: int) -> float:
        """Return the seconds that so many turns of a compiled loop take, as within NUTS."""
        started = time.perf_counter()
        self._loop(self._q, evaluations)[0].block_until_ready()
        return time.perf_counter() - started


# PyTorch


def torch_eta(posterior: Posterior) -> Callable[[Any, Any], Any]:
    """Return a function of c and z: the linear predictor (N,) in PyTorch."""
    import torch

    subspace, a = posterior.subspace, len(posterior.subspace.axes)
    p_bar, Pi, Z, Xc = _tensors(subspace.p_bar, subspace.Pi, posterior.Z, posterior.Xc)
    axes = torch.as_tensor(subspace.axes)
    phi_scale, theta_scale = _tensors(subspace.phi_scale, posterior.theta_scale)

    def eta(c: Any, z: Any) -> Any:
        phi, theta = phi_scale * c, theta_scale * z
        w = (p_bar + Pi @ phi[a:]).index_add(0, axes, phi[:a])
        f = posterior.network.forward(w, Z)[:, 0]
        return posterior.eta_loc + posterior.eta_scale * f + Xc @ theta

    return eta


def torch_gradient(posterior: Posterior) -> Evaluate:
    """Return a function that evaluates the log density and its gradient by autograd."""
    import torch
    from torch.distributions import Normal, StudentT

    torch.set_num_threads(1)
    predictor, log_constant = torch_eta(posterior), posterior.log_constant
    (y,) = _tensors(posterior.y)
    densities = (
        Normal(*_tensors(*posterior.c_prior), validate_args=False),
        Normal(*_tensors(*posterior.z_prior), validate_args=False),
        StudentT(*_tensors(*posterior.sigma_prior), validate_args=False),
    )

    def evaluate(q: Array) -> tuple[float, Array]:
        state = torch.tensor(q, requires_grad=True)
        c, z, sigma = state[: posterior.k], state[posterior.k : -1], state[-1].exp()
        value = Normal(predictor(c, z), sigma, validate_args=False).log_prob(y).sum()
        for density, values in zip(densities, (c, z, sigma), strict=True):
            value = value + density.log_prob(values).sum()
        value = value + state[-1] + log_constant
        value.backward()
        assert state.grad is not None
        return value.item(), state.grad.numpy()

    return evaluate


def _tensors(*values: Any) -> list[Any]:
    import torch

    return [torch.tensor(value, dtype=torch.float64) for value in values]


# NumPyro


def numpyro_model(posterior: Posterior) -> Callable[[], None]:
    """Return the model as a user of NumPyro would write it."""
    import numpyro
    from numpyro import distributions as dist

    def model() -> None:
        z_prior = posterior.z_prior
        c = numpyro.sample("c", dist.Normal(*posterior.c_prior).to_event(1))
        z = numpyro.sample("z", dist.Normal(*z_prior).to_event(1))
        t = dist.StudentT(*posterior.sigma_prior)
        sigma = numpyro.sample("sigma", dist.TruncatedDistribution(t, low=0.0))
        eta = jax_eta(posterior, c, z)
        numpyro.sample("y", dist.Normal(eta, sigma), obs=posterior.y)

    return model


def numpyro_sampler(posterior: Posterior, warmup: int, draws: int, dense: bool) -> Sampler:
    """Return NumPyro's NUTS for one chain, compiled.

    NumPyro's ``MCMC`` compiles anew for every chain, so its kernel is run in a loop like
    ``MCMC``'s that is compiled once.
    """
    jax = one_core_jax()
    from numpyro.infer import NUTS

    kernel = NUTS(numpyro_model(posterior), dense_mass=dense)

    def step(state: Any, _: Any = None) -> tuple[Any, Any]:
        state = kernel.sample(state, (), {})
        return state, (state.z, state.num_steps)

    def first(q: Mapping[str, Array], seed: int) -> Any:
        q = jax.tree.map(jax.numpy.asarray, dict(q))
        return kernel.init(jax.random.PRNGKey(seed), warmup, q, (), {})

    origin = first(_named(posterior, np.zeros(posterior.k + len(posterior.theta_scale) + 1)), 0)
    adapt = (
        jax.jit(lambda state: jax.lax.fori_loop(0, warmup, lambda _, s: step(s)[0], state))
        .lower(origin)
        .compile()
    )
    run = jax.jit(lambda state: jax.lax.scan(step, state, length=draws)[1]).lower(origin).compile()

    def sample(start: Start, seed: int) -> tuple[Chain, Cost]:
        clock = time.process_time()
        adapted = jax.block_until_ready(adapt(first(_unconstrained(posterior, start), seed)))
        begun = time.process_time()
        samples, steps = jax.block_until_ready(run(adapted))
        cost = Cost(begun - clock, time.process_time() - begun, int(steps.sum()))
        return _chain(posterior, samples), cost

    return sample


def numpyro_log_density(posterior: Posterior) -> Evaluate:
    """Return the log density that NumPyro's NUTS sees, with its gradient."""
    jax = one_core_jax()
    from numpyro.infer.util import initialize_model

    information = initialize_model(jax.random.PRNGKey(0), numpyro_model(posterior))
    gradient = jax.value_and_grad(information.potential_fn)

    def evaluate(q: Array) -> tuple[float, Array]:
        value, slope = gradient(_named(posterior, q))
        return -float(value), -np.concatenate([np.ravel(slope[name]) for name in NAMES])

    return evaluate


# nutpie


def nutpie_sampler(posterior: Posterior, warmup: int, draws: int) -> Sampler:
    """Return nutpie's NUTS for one chain; each gradient is a call of the compiled JAX function."""
    jax = one_core_jax()
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    ndim = posterior.k + len(posterior.theta_scale) + 1
    gradient = jax.jit(jax.value_and_grad(jax_log_density(posterior)))
    gradient(np.zeros(ndim))  # compiled

    def log_density(q: Array) -> tuple[float, Array]:
        value, slope = gradient(q)
        return float(value), np.asarray(slope)

    def sample(start: Start, seed: int) -> tuple[Chain, Cost]:
        named = _unconstrained(posterior, start)
        origin = np.concatenate([np.ravel(named[name]) for name in NAMES])
        model = from_pyfunc(
            ndim,
            make_logp_fn=lambda: log_density,
            make_expand_fn=lambda *_: lambda q: {"q": q},
            expanded_dtypes=[np.dtype(float)],
            expanded_shapes=[(ndim,)],
            expanded_names=["q"],
            make_initial_point_fn=lambda _: origin,
        )
        clock = time.process_time()
        found = nutpie.sample(
            model, draws=draws, tune=warmup, chains=1, cores=1, seed=seed, progress_bar=False
        )
        seconds = time.process_time() - clock
        adapting, kept = (
            int(found[group]["n_steps"].sum()) for group in ("warmup_sample_stats", "sample_stats")
        )
        q = found["posterior"]["q"].to_numpy()[0]
        # it does not time its warm-up by itself, and a gradient takes as long there
        return _chain(posterior, _named(posterior, q)), Cost(adapting, kept, kept).of(seconds)

    return sample


# States and draws

NAMES = ("c", "z", "sigma")  # the order within q


def _named(posterior: Posterior, q: Array) -> dict[str, Array]:
    """Split unconstrained states by name, along their last axis."""
    k = posterior.k
    return {"c": q[..., :k], "z": q[..., k:-1], "sigma": q[..., -1]}


def _unconstrained(posterior: Posterior, start: Start) -> dict[str, Array]:
    """Map initial values to unconstrained ones."""
    return {
        "c": np.asarray(start["phi"], dtype=float) / posterior.subspace.phi_scale,
        "z": np.asarray(start["theta"]) / posterior.theta_scale,
        "sigma": np.log(start["sigma"]),
    }


def _chain(posterior: Posterior, samples: Mapping[str, Any]) -> Chain:
    """Map one chain's unconstrained draws to the parameters in the user's units."""
    c, z, log_sigma = (np.asarray(samples[name]) for name in NAMES)
    phi, theta = posterior.subspace.phi_scale * c, posterior.theta_scale * z
    return {"phi": phi, "theta": theta, "sigma": np.exp(log_sigma)}
