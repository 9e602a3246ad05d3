"""What a gradient of a model takes, counted rather than timed.

A clock would give another model on a busy machine than on an idle one. So seconds are counts times
rates, constants of what computes the gradient:

    seconds = call + rows (row + unit x units + product x products + pair x pairs) / threads
            + cube x m^3.

Units are those of the network's layers, products the multiplications of a row's forward pass: at
least one for each weight, one for each place of a convolution, and one for each column of the
predictors. Of m coordinates that are integrated out, o are output weights: the products of o^2 + 2
o (m - o) pairs are summed over the rows, those of columns that are data once for all gradients; and
a matrix of m^2 is factorised. Likelihoods that cost more than that of a gaussian response are not
told apart.

The rates are least squares of relative errors on ``make bench-gradient``: 200 to 20,000 rows,
networks of 1 x 3 to 2 x 128 tanh units, one thread of an Intel Xeon. There the kernel takes 0.9 to
1.2 times what is counted, pure Stan 0.8 to 1.4, PyTorch 0.7 to 1.3. Where vectors are half as wide
(AVX2, an AMD EPYC), the kernel takes 1.9 times as long. The rates of what is integrated out are of
fits to 500 and 5,000 rows with 18 to 101 such coordinates: 0.8 to 1.0 times what is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistan.infer.methods import method_of
from semistan.infer.plan import plan_threads
from semistan.lazy import torch
from semistan.model.model import Model
from semistan.model.names import MU
from semistan.model.networks.networks import Networks, output_layers
from semistan.model.table.rows import Rows
from semistan.model.terms.term import Term
from semistan.program.parts import has_kernel, has_log_lik
from semistan.workflow.prepare import Prepared


@dataclass(frozen=True, slots=True)
class Rate:
    """Seconds of a gradient: of the call, of a row, of what is computed in each row, and once."""

    call: float
    row: float
    unit: float
    product: float
    pair: float = 0.0
    cube: float = 0.0


KERNEL = Rate(2.0e-6, 6.8e-9, 1.1e-9, 1.3e-10, 1.0e-10, 5e-11)
STAN = Rate(0.0, 5.6e-8, 3.7e-8, 9.7e-10, 1.0e-10, 1.0e-10)
KERNEL_BESIDE_STAN = Rate(KERNEL.call, STAN.row, KERNEL.unit, KERNEL.product)
IN_TORCH = Rate(8.2e-4, 4.4e-8, 5.8e-9, 1.6e-10)


def gradient_seconds(prepared: Prepared) -> float:
    """Return the seconds that a gradient is taken to need."""
    model, options = prepared.model, prepared.config.sample
    by_stan = method_of(options).by_stan
    rate, threads = (_rate(model), plan_threads(options)[1]) if by_stan else (IN_TORCH, 1)
    units = sum(layer.n for part in model.network.parts for layer in part.layers())
    products = forward_products(model.network) + _columns(model, prepared.rows)
    o, data = _integrated(model, prepared.rows)
    pairs = o**2 + 2 * o * data
    of_row = rate.row + rate.unit * units + rate.product * products + rate.pair * pairs
    once = rate.call + rate.cube * (o + data) ** 3
    return once + len(prepared.rows) * of_row / threads


def _rate(model: Model) -> Rate:
    """Return the rate of the program that will compute a model."""
    if model.config.sample.kernel == "stan" or not has_kernel(model):
        return STAN
    return KERNEL if has_log_lik(model.family, model.design) else KERNEL_BESIDE_STAN


def _integrated(model: Model, rows: Rows) -> tuple[int, int]:
    """Return how many output weights are integrated out, and how many columns that are data."""
    if model.integral is None:
        return 0, 0
    theta = rows.predictors[MU].X.shape[1] if model.integral.theta else 0
    of_terms = sum(term.training_size for term in model.integral.terms)
    outputs = sum(len(layer) for layer in output_layers(model.network, MU))
    return outputs if model.integral.phi else 0, theta + of_terms


def forward_products(network: Networks) -> int:
    """Return the multiplications of a row's forward pass through all networks."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        for part in network.parts:
            w, u = (torch.zeros(size, dtype=torch.float64) for size in (part.d, part.n_inputs))
            part.forward(w, u[None])
    return max(network.d, int(counter.get_total_flops()) // 2)


def _columns(model: Model, rows: Rows) -> int:
    """Return the columns of all predictors, and of their smooths and groups."""
    dense: tuple[Term, ...] = model.integral.terms if model.integral else ()
    total: int = sum(own.X.shape[1] for own in rows.predictors.values())
    for predictor in model.design.predictors:
        blocks = rows.predictors[predictor.name].blocks
        for term, block in zip(predictor.terms, blocks, strict=True):
            total += term.training_size if term in dense else block.Z.shape[1]
    return total
