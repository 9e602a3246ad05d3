"""A chain that is drawn step by step: it keeps its state, and goes on from where it was left.

Now and then, and when it is interrupted, it hands the state from which it goes on to the same bytes
to ``Report.keep``; ``ChainTask.left`` brings it back.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.foreign import TEXTS, read_arrays
from semistan.errors import InputError
from semistan.infer.backends.backend import Report
from semistan.infer.task import ChainTask
from semistan.model.arrays import Array

SECONDS_BETWEEN_SAVES = 5.0
STATE, TRACE = "state_", "trace_"  # before their names in what is kept

State = dict[str, Array]
Move = Callable[["ChainState", np.random.Generator], tuple[State, Mapping[str, "Array | float"]]]


@dataclass(frozen=True, slots=True, eq=False)
class ChainState:
    """A chain between two iterations: all that going on needs.

    Attributes
    ----------
    done : int
        Iterations done, warm-up included.
    state : dict of arrays
        Where the chain is and how it moves, by name.
    random : dict
        State of the random generator.
    trace : dict of arrays, shape (T, ...)
        What the iterations so far brought, by name; what is beyond ``done`` does not count.
    """

    done: int
    state: State
    random: dict[str, Any]
    trace: dict[str, Array]

    def past(self, name: str, first: int = 0) -> Array:
        """Return what the iterations from one on brought."""
        return self.trace[name][first : self.done]


def run_to_end(
    task: ChainTask, begin: Callable[[np.random.Generator], State], move: Move, report: Report
) -> dict[str, Array]:
    """Take a chain to its end, from where it was left, and return what its draws brought.

    It depends only on the run's seed and the chain's number: each iteration begins with the random
    state that the one before left, so that one which is stopped within is repeated.

    Parameters
    ----------
    task : ChainTask
        With its numbers of iterations, its seed and what an interrupted attempt kept.
    begin : callable
        Returns the state of a new chain, given a random generator.
    move : callable
        Turns a chain and a random generator into the state after one more iteration, and into
        what it brought by name, always the same names and shapes.
    report : Report
        Gets each iteration, and the states to be kept.

    Returns
    -------
    dict of arrays, shape (S, ...)
        What the iterations after warm-up brought.
    """
    options = task.options
    assert options.warmup != "auto"
    total, generator = options.warmup + options.per_chain, np.random.default_rng()
    chain = _left(task, total) or _new(task, begin)
    generator.bit_generator.state, saved = chain.random, time.monotonic()
    try:
        while chain.done < total:
            state, brought = move(chain, generator)
            random = dict(generator.bit_generator.state)
            trace = _written(chain, brought, total)
            chain = ChainState(chain.done + 1, state, random, trace)
            report.step(chain.done, total)
            if time.monotonic() > saved + SECONDS_BETWEEN_SAVES:
                report.keep(_bytes(chain, task))
                saved = time.monotonic()
    except BaseException:
        report.keep(_bytes(chain, task))
        raise
    return {name: chain.past(name, options.warmup) for name in chain.trace}


def _new(task: ChainTask, begin: Callable[[np.random.Generator], State]) -> ChainState:
    generator = np.random.default_rng([task.options.seed, task.number])
    state = begin(generator)
    return ChainState(0, state, dict(generator.bit_generator.state), {})


def _written(
    chain: ChainState, brought: Mapping[str, Array | float], total: int
) -> dict[str, Array]:
    """Write what an iteration brought into the trace, which is made with the first."""
    trace = chain.trace or {name: np.empty((total, *np.shape(x))) for name, x in brought.items()}
    for name, value in brought.items():
        trace[name][chain.done] = value
    return trace


def _key(task: ChainTask) -> str:
    """Return what must be the same for a chain to go on."""
    options = task.options
    return json.dumps([options.method, options.seed, options.warmup, options.per_chain])


def _bytes(chain: ChainState, task: ChainTask) -> bytes:
    """Return a chain between two iterations as bytes."""
    file = io.BytesIO()
    content: dict[str, Any] = {STATE + name: value for name, value in chain.state.items()}
    content |= {TRACE + name: chain.past(name) for name in chain.trace}
    content |= {"key": _key(task), "done": chain.done, "random": json.dumps(chain.random)}
    np.savez(file, **content)
    return file.getvalue()


def _left(task: ChainTask, total: int) -> ChainState | None:
    """Read what an interrupted chain left, unless it was another run's."""
    if task.left is None:
        return None
    try:
        left = read_arrays(Path("an unfinished chain"), TEXTS, task.left)
    except InputError:  # it is drawn from its start, to the same draws
        return None
    if str(left.get("key")) != _key(task):
        return None
    chain = ChainState(int(left["done"]), _named(left, STATE), json.loads(str(left["random"])), {})
    past = _named(left, TRACE)
    rest = total - chain.done
    return replace(
        chain,
        trace={
            name: np.concatenate([x, np.empty((rest, *x.shape[1:]))]) for name, x in past.items()
        },
    )


def _named(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name[len(prefix) :]: x for name, x in arrays.items() if name.startswith(prefix)}
