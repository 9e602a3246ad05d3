"""A chain's task: everything that its draws depend on, in one frozen value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from semistan.density.columns import unconstrained
from semistan.density.mode import Mode
from semistan.density.target import Target, make_target
from semistan.infer.backends.backend import Report
from semistan.infer.content import Content
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.table.rows import Rows
from semistan.program.parts import Kernel

ONE_THREAD_ACTIVATIONS = 100_000  # rows times widest layer below which threads do not help

OUTSIDE = 1  # the stream of random numbers beside that of the chain


@dataclass(frozen=True, slots=True, eq=False)
class ChainTask:
    """One chain to be drawn; CmdStan's methods use the program, PyTorch's the rows.

    Attributes
    ----------
    draw : callable
        The method's ``chain``.
    number : int
        The chain's number, from 1.
    options : SampleConfig
        Draws, warm-up and seed; nothing in them is ``auto`` any more.
    bundle : Bundle
        The trained model.
    prior_only : bool
        Whether the likelihood is left out.
    start : Content
        Initial values, in the user's units.
    mode : Content, optional
        The mode that the chain starts at: a metric for CmdStan, and where it is.
    keep_metric : bool
        Whether warm-up adapts the step size only, and leaves the metric as it is.
    program : str
        Text of the Stan program.
    data : Content
        Its data.
    kernel : str
        Whether it declares the C++ kernel (``cpp``).
    threads : int
        CmdStan's threads within the chain.
    rows : Rows, optional
        The training rows, for a method that PyTorch runs.
    left : bytes, optional
        What an interrupted attempt kept.
    where : str
        Of which of several runs the chain is, for an error message.
    """

    draw: Callable[[ChainTask, Report], bytes]
    number: int
    options: SampleConfig
    bundle: Bundle
    prior_only: bool
    start: Content
    mode: Content | None
    keep_metric: bool
    program: str
    data: Content
    kernel: Kernel
    threads: int
    rows: Rows | None = None
    left: bytes | None = None
    where: str = ""

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return f"chain {self.number}{self.where}"

    @property
    def in_thread(self) -> bool:
        """CmdStan is a process of its own."""
        return self.rows is None

    @property
    def seed(self) -> int:
        """The chain's own seed."""
        return chain_seed(self.options.seed, self.number)

    def run(self, report: Report) -> bytes:
        """Draw the chain and return its CSV file."""
        if self.rows is None:
            return self.draw(self, report)
        with torch_threads(len(self.rows) * self.bundle.network.widest), all_bits():
            return self.draw(self, report)

    def target(self) -> Target:
        """Return the posterior in PyTorch."""
        assert self.rows is not None
        return make_target(self.bundle, self.rows, prior_only=self.prior_only)

    def outside(self, target: Target, size: int) -> Array | None:
        """Draw coordinates outside the subspace, (size, K), if it is completed."""
        return target.outside(size, np.random.default_rng((self.seed, OUTSIDE)))

    def begin(self, target: Target) -> tuple[Array, Mode | None]:
        """Return where the chain starts, q (n,), and the mode there.

        Earlier versions stored a mode's metric alone; the start stands for the mode then.
        """
        q = unconstrained(target, json.loads(self.start.read()))
        if self.mode is None:
            return q, None
        found = {"q": q, "log_density": np.nan, "steps": 0} | json.loads(self.mode.read())
        found |= {name: np.asarray(found[name], dtype=float) for name in ("q", "inv_metric")}
        return q, Mode(**found)


def chain_seed(seed: int, chain: int) -> int:
    """Return a chain's own seed, below 2^31 as CmdStan 2.27 expects."""
    return int(np.random.SeedSequence((seed, chain)).generate_state(1)[0]) >> 1


@contextmanager
def torch_threads(activations: int) -> Iterator[None]:
    """Compute small problems on one thread: PyTorch's others cost more than they give.

    Parameters
    ----------
    activations : int
        Rows times the width of the widest layer.
    """
    before = torch.get_num_threads()
    if activations < ONE_THREAD_ACTIVATIONS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def all_bits() -> Iterator[None]:
    """Let a GPU convolve with the 24 bits of single precision, not with the 11 of TF32.

    A log-likelihood that is summed over the rows needs them.
    """
    if not torch.cuda.is_available():
        yield
        return
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
