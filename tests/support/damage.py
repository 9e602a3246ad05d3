"""Files damaged at random, and what every reader makes of them."""

from collections import Counter
from dataclasses import dataclass, field

import semistan
from semistan.errors import SemistanError
from semistan.posterior.run import read_run
from semistan.workflow.new_run import start_run
from semistan.workflow.sample import read_fitted
from semistan.workflow.sample import sample as sample_run
from support.small import small_frame

NEW = small_frame()[:3]


def flip(content, generator):
    """Return the bytes with one bit of one of them flipped, and where."""
    place, bit = int(generator.integers(len(content))), int(generator.integers(8))
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :], place


def truncate(content, generator):
    """Return the bytes cut somewhere, and where."""
    place = int(generator.integers(len(content)))
    return content[:place], place


def summary(run):
    return read_fitted(run).summary.table()


def predict(run):
    return semistan.predict(run, NEW)


def predict_by_onnx(run):
    return semistan.predict(run, NEW, engine="onnx")


def score(run):
    return semistan.score(run, NEW)


def loo(run):
    return semistan.loo(run).table()


def sample(run):
    """Complete the run: the last, for it writes."""
    return sample_run(read_run(run)).summary.table()


READERS = (summary, predict, predict_by_onnx, score, loo, sample)


def sample_bundle(bundle):
    """Sample a bundle into a run beside it."""
    small_frame().to_csv(bundle.parent / "data.csv", index=False)
    out = bundle.parent / "new"
    run = start_run(bundle, str(bundle.parent / "data.csv"), out, {}, overwrite=True)
    return sample_run(run).summary.table()


@dataclass
class Tally:
    """What became of damages, counted, with each one that must not be."""

    counts: Counter = field(default_factory=Counter)
    wrong: list = field(default_factory=list)

    def judge(self, where, reader, folder, expected):
        """Let a reader read a damaged folder: detected, harmless, silent or a traceback."""
        try:
            found = reader(folder).to_csv()
        except SemistanError as error:
            self.counts["detected"] += 1
            assert str(error)
            return
        except Exception as error:
            self._note("traceback", f"{where}, {reader.__name__}: {type(error).__name__}: {error}")
            return
        same = expected is None or found == expected
        if same:
            self.counts["harmless"] += 1
        else:
            self._note("silent", f"{where}, {reader.__name__}")

    def _note(self, kind, text):
        self.counts[kind] += 1
        self.wrong.append(f"{kind}: {text}")

    def __str__(self):
        kinds = ("detected", "harmless", "silent", "traceback")
        return ", ".join(f"{self.counts[kind]} {kind}" for kind in kinds)
