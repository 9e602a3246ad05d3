"""What a gradient of a model takes, counted rather than timed.

A clock would give another model on a busy machine than on an idle one. So seconds are counts times
rates, constants of what computes the gradient:

    seconds = call + rows (row + unit x units + product x products + square x m^2) / threads.

Units are those of the network's layers, products the multiplications of a row's forward pass: at
least one for each weight, one for each place of a convolution, and one for each column of the
predictors. Of m coordinates that are integrated out, the products of all pairs are summed over the
rows. Likelihoods that cost more than that of a gaussian response are not told apart.

The rates are least squares of relative errors on ``make bench-gradient``: 200 to 20,000 rows,
networks of 1 x 3 to 2 x 128 tanh units, one thread of an Intel Xeon. There the kernel takes 0.9 to
1.2 times what is counted, pure Stan 0.8 to 1.4, PyTorch 0.7 to 1.3. Where vectors are half as wide
(AVX2, an AMD EPYC), the kernel takes 1.9 times as long.
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
from semistan.program.parts import has_kernel, has_log_lik
from semistan.workflow.prepare import Prepared


@dataclass(frozen=True, slots=True)
class Rate:
    """Seconds of a gradient: of the call, of a row, and of what is computed in each row."""

    call: float
    row: float
    unit: float
    product: float
    square: float = 0.0


KERNEL = Rate(2.0e-6, 6.8e-9, 1.1e-9, 1.3e-10, 1.5e-10)
STAN = Rate(0.0, 5.6e-8, 3.7e-8, 9.7e-10, 3.9e-9)
KERNEL_BESIDE_STAN = Rate(KERNEL.call, STAN.row, KERNEL.unit, KERNEL.product)
IN_TORCH = Rate(8.2e-4, 4.4e-8, 5.8e-9, 1.6e-10)


def gradient_seconds(prepared: Prepared) -> float:
    """Return the seconds that a gradient is taken to need."""
    model, options = prepared.model, prepared.config.sample
    by_stan = method_of(options).by_stan
    rate, threads = (_rate(model), plan_threads(options)[1]) if by_stan else (IN_TORCH, 1)
    units = sum(layer.n for part in model.network.parts for layer in part.layers())
    products = forward_products(model.network) + _columns(prepared.rows)
    m = _integrated(model, prepared.rows)
    of_row = rate.row + rate.unit * units + rate.product * products + rate.square * m**2
    return rate.call + len(prepared.rows) * of_row / threads


def _rate(model: Model) -> Rate:
    """Return the rate of the program that will compute a model."""
    if model.config.sample.kernel == "stan" or not has_kernel(model):
        return STAN
    return KERNEL if has_log_lik(model.family, model.design) else KERNEL_BESIDE_STAN


def _integrated(model: Model, rows: Rows) -> int:
    """Return how many coordinates are integrated out."""
    if model.integral is None:
        return 0
    theta = rows.predictors[MU].X.shape[1] if model.integral.theta else 0
    return theta + sum(len(layer) for layer in output_layers(model.network, MU))


def forward_products(network: Networks) -> int:
    """Return the multiplications of a row's forward pass through all networks."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        for part in network.parts:
            w, u = (torch.zeros(size, dtype=torch.float64) for size in (part.d, part.n_inputs))
            part.forward(w, u[None])
    return max(network.d, int(counter.get_total_flops()) // 2)


def _columns(rows: Rows) -> int:
    """Return the columns of all predictors, and of their smooths and groups."""
    return sum(
        own.X.shape[1] + sum(block.Z.shape[1] for block in own.blocks)
        for own in rows.predictors.values()
    )
