"""What a method of inference is: a record, and a function from a chain's task to its draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from semistan.infer.backends.backend import Report
from semistan.infer.continuation import Continued
from semistan.infer.task import ChainTask
from semistan.model.config import ModelConfig

OLDEST = (2, 27)  # of the CmdStans that are supported


def accept(_: ModelConfig) -> None:
    """Refuse no model."""


@dataclass(frozen=True, slots=True)
class Method:
    """One way to sample or to approximate the posterior.

    Attributes
    ----------
    name : str
        By which users ask for it.
    text : str
        What it is, in a few words.
    chain : callable
        Turns a chain's task into the text of its CSV file. A chain depends on its task alone, and
        touches no folder and no other chain; ``Report`` takes its progress and, of a method that
        can go on where it was interrupted, its state.
    approximate : bool
        Whether its draws are from an approximation, whatever their number.
    by_stan : bool
        Whether CmdStan runs it on the compiled program; otherwise PyTorch does.
    has_warmup : bool
        Whether warm-up iterations come first.
    columns : dict
        Columns of its CSV files about the method itself, by ArviZ's names. Approximations have
        ``log_p`` and ``log_g``: log densities of a draw under the posterior and under the
        approximation, both up to a constant.
    check : callable
        Refuses models that it cannot sample, with an ``InputError``.
    hamiltonian : bool
        Whether it is Hamiltonian Monte Carlo, which has a metric and a tree depth.
    since : tuple of int
        The first CmdStan that has it.
    lines_before : int
        Lines of numbers in its CSV files that come before the first draw.
    dimensions : int, optional
        Of a subspace in which it works well, if there is a limit.
    gradients : int, optional
        That an iteration takes, where they are as many in any dimension.
    linearised : bool
        Whether its draws are of a network that is linear in phi, around that of the first line.
    from_mode : bool
        Whether chains start around modes, which are looked for, or else on the trained curve.
    unadjusted : bool
        Whether its chains follow a dynamics by steps whose errors are not corrected: a bias that
        more draws do not remove. It has the column ``energy_error``.
    main : str, optional
        The main program, ``stan/<main>.cpp``, to which the compiled program is linked for it; by
        default CmdStan's own.
    continued : callable, optional
        Continues a finished chain by more draws.
    """

    name: str
    text: str
    chain: Callable[[ChainTask, Report], bytes]
    approximate: bool
    by_stan: bool
    has_warmup: bool
    columns: dict[str, str] = field(hash=False)
    check: Callable[[ModelConfig], None] = accept
    hamiltonian: bool = False
    since: tuple[int, int] = OLDEST
    lines_before: int = 0
    dimensions: int | None = None
    gradients: int | None = None
    linearised: bool = False
    from_mode: bool = True
    unadjusted: bool = False
    main: str | None = None
    continued: Continued | None = None

    @property
    def samples_program(self) -> bool:
        """Whether it samples the compiled program by iterations.

        Threads share a chain's rows then, and CmdStan's ``generate_quantities`` reads its files.
        """
        return self.by_stan and self.has_warmup
