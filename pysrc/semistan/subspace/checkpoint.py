"""Where a training is, so that an interrupted one goes on to the very numbers it would have had.

A construction may run several descents, one after the other, and all else that it does follows from
the seed. So what is kept are the states of its descents: those that have ended are not repeated,
and the one that was interrupted goes on from its last state that was kept.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Generator, Tensor

SECONDS_BETWEEN_SAVES = 5.0
STATE = "state"


@dataclass(eq=False)
class Descent:
    """A descent between two epochs.

    Attributes
    ----------
    parameters : list of tensors
        What is trained.
    optimiser, schedule, generator
        How it moves on.
    best : list of tensors
        The parameters of least validation loss.
    least : float
        That loss.
    kept, epoch : int
        The epoch of it, and the last one.
    records : list of tuple of float
        What was looked at during training.
    ended : bool
        Whether no epoch is left.
    """

    parameters: list[Tensor]
    optimiser: torch.optim.Adam
    schedule: torch.optim.lr_scheduler.CosineAnnealingLR
    generator: Generator
    best: list[Tensor]
    least: float = np.inf
    kept: int = 0
    epoch: int = 0
    records: list[tuple[float, ...]] = field(default_factory=list)
    ended: bool = False

    def state(self) -> dict[str, Array]:
        """Return copies of all that going on needs, by name."""
        moments = self.optimiser.state_dict()["state"]
        schedule = self.schedule.state_dict()
        plain = {
            "least": self.least, "kept": self.kept, "epoch": self.epoch, "ended": self.ended,
            "rate": self.optimiser.param_groups[0]["lr"],
            "schedule": {name: schedule[name] for name in SCHEDULE},
        }  # fmt: skip
        named = {f"parameters_{i}": x for i, x in enumerate(self.parameters)}
        named |= {f"best_{i}": x for i, x in enumerate(self.best)}
        named |= {f"adam_{i}_{n}": x for i, own in moments.items() for n, x in own.items()}
        named |= {"generator": self.generator.get_state()}
        arrays = {name: x.detach().cpu().numpy().copy() for name, x in named.items()}
        return arrays | {"plain": np.array(json.dumps(plain)), "records": np.array(self.records)}

    def restore(self, state: dict[str, Array]) -> None:
        """Go back to a state that was kept."""
        plain = json.loads(str(state["plain"]))
        with torch.no_grad():
            for i, (own, best) in enumerate(zip(self.parameters, self.best, strict=True)):
                own.copy_(torch.from_numpy(state[f"parameters_{i}"]))
                best.copy_(torch.from_numpy(state[f"best_{i}"]))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, values in state.items():
            if name.startswith("adam_"):
                _, number, moment = name.split("_", 2)
                moments.setdefault(int(number), {})[moment] = torch.from_numpy(values)
        groups = self.optimiser.state_dict()["param_groups"]
        groups[0]["lr"] = plain["rate"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.schedule.load_state_dict(self.schedule.state_dict() | plain["schedule"])
        self.generator.set_state(torch.from_numpy(state["generator"]))
        self.least, self.kept, self.epoch = (plain[name] for name in ("least", "kept", "epoch"))
        self.records, self.ended = [tuple(row) for row in state["records"]], plain["ended"]


SCHEDULE = ("last_epoch", "_step_count", "_last_lr")


@dataclass(eq=False)
class Checkpoints:
    """The states of one training's descents, and where they are kept.

    Attributes
    ----------
    key : str
        What must be the same for a training to go on.
    keep : callable
        Takes the bytes.
    left : list of dict
        States that an interrupted attempt kept, in the order of its descents.
    states : list of dict
        Those of this attempt.
    saved : float
        When they were last kept.
    """

    key: str
    keep: Callable[[bytes], None]
    left: list[dict[str, Array]]
    states: list[dict[str, Array]] = field(default_factory=list)
    saved: float = -np.inf

    def begin(self, descent: Descent) -> None:
        """Take a new descent to where an interrupted attempt left it."""
        number = len(self.states)
        if number < len(self.left):
            descent.restore(self.left[number])
        self.states.append(descent.state())

    def note(self, descent: Descent) -> None:
        """Keep a descent's state if it has ended, or the last was kept some seconds ago."""
        now = time.monotonic()
        if not descent.ended and now < self.saved + SECONDS_BETWEEN_SAVES:
            return
        self.states[-1], self.saved = descent.state(), now
        self.keep(_bytes(self.key, self.states))


_OF_THIS_TRAINING: ContextVar[Checkpoints | None] = ContextVar("checkpoints", default=None)


@contextmanager
def kept(key: str, keep: Callable[[bytes], None], left: bytes | None) -> Iterator[None]:
    """Keep the states of the descents in the block, which goes on where another was left.

    Parameters
    ----------
    key : str
        What must be the same for a training to go on; of another one, nothing is taken.
    keep : callable
        Takes the bytes, again and again.
    left : bytes, optional
        The last of an interrupted attempt.
    """
    states = [] if left is None or key_of(left) != key else _states(left)
    token = _OF_THIS_TRAINING.set(Checkpoints(key, keep, states))
    try:
        yield
    finally:
        _OF_THIS_TRAINING.reset(token)


def begin(descent: Descent) -> Callable[[Descent], None]:
    """Take a descent to where it was left, and return what notes its epochs."""
    checkpoints = _OF_THIS_TRAINING.get()
    if checkpoints is None:
        return lambda _: None
    checkpoints.begin(descent)
    return checkpoints.note


def key_of(left: bytes) -> str:
    """Return the key of the training that kept these bytes; empty if they are damaged."""
    try:
        with np.load(io.BytesIO(left), allow_pickle=False) as file:
            return str(file["key"])
    except (ValueError, KeyError, EOFError, OSError, BadZipFile):
        return ""


def _bytes(key: str, states: list[dict[str, Array]]) -> bytes:
    file = io.BytesIO()
    content: dict[str, Any] = {
        f"{STATE}_{number}_{name}": values
        for number, state in enumerate(states)
        for name, values in state.items()
    }
    np.savez(file, key=np.array(key), **content)
    return file.getvalue()


def _states(left: bytes) -> list[dict[str, Array]]:
    states: dict[int, dict[str, Array]] = {}
    with np.load(io.BytesIO(left), allow_pickle=False) as file:
        for full in file.files:
            if full != "key":
                _, number, name = full.split("_", 2)
                states.setdefault(int(number), {})[name] = file[full]
    return [states[number] for number in sorted(states)]
