"""Tables in pieces: the same rows, types and predictions as in one."""

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from semistan.data import chunks as module
from semistan.data.chunks import read_pieces
from semistan.data.tables import read_table
from semistan.errors import InputError
from semistan.infer.backends.local import LOCAL
from semistan.posterior.posterior import SubspacePosterior
from semistan.workflow import predict as predicting
from semistan.workflow.prepare import new_rows
from semistan.workflow.watch import Watch
from support.drawn import random_draws
from support.small import small_bundle, small_frame
from support.untrained import random_bundle, random_frame

ROWS = 23


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 5)
    monkeypatch.setattr(module, "LONG", 0)


@pytest.fixture
def table():
    """Columns whose pieces pandas takes for something else than the whole."""
    codes = [*("1" for _ in range(20)), "b", "1", "07"]
    return pd.DataFrame(
        {
            "x": [*range(20), 0.5, 1, 2], "code": codes, "g": ["a", "b"] * 11 + ["a"],
            "y": np.linspace(0, 1, ROWS),
        }
    )  # fmt: skip


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather", ".csv.gz"])
def test_pieces_have_the_rows_and_types_of_the_table(table, suffix, tmp_path):
    path = tmp_path / f"new{suffix}"
    write = {".parquet": table.to_parquet, ".feather": table.to_feather}
    write.get(suffix, lambda to: table.to_csv(to, index=False))(path)
    found = list(read_pieces(path))
    assert [len(piece) for piece in found] == [5, 5, 5, 5, 3]
    assert [i for piece in found for i in piece.index] == list(range(ROWS))
    pd.testing.assert_frame_equal(read_pieces(path).whole(), read_table(path), check_dtype=False)
    assert {piece["code"].dtype for piece in found} == {found[-1]["code"].dtype}


def test_what_is_wrong_with_a_long_text_file_is_said_before_any_row_is_used(tmp_path):
    (tmp_path / "long.csv").write_text("a,b\n" + "1,2\n" * 12 + "1,2,3\n")
    with pytest.raises(InputError, match="no readable CSV"):
        read_pieces(tmp_path / "long.csv")
    (tmp_path / "twice.csv").write_text("a,a\n" + "1,2\n" * 12)
    with pytest.raises(InputError, match="several columns of the same name"):
        read_pieces(tmp_path / "twice.csv")
    (tmp_path / "old.csv").write_bytes(b"a,g\n" + b"1,x\n" * 12 + "1,é\n".encode("cp1252"))
    assert read_pieces(tmp_path / "old.csv").whole()["g"].iloc[-1] == "é"


class Run:
    """What predictions ask of a run."""

    def __init__(self, bundle):
        self.bundle, self.members = bundle, (self,)

    def rows(self):
        frame = random_frame(self.bundle.family.name, np.random.default_rng(3), ROWS)
        return new_rows(self.bundle, frame)


@pytest.fixture
def run(monkeypatch):
    bundle, _ = random_bundle("gaussian")
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    monkeypatch.setattr(predicting, "opened", lambda run: run)
    monkeypatch.setattr(predicting, "member_engine", lambda *_: None)
    monkeypatch.setattr(predicting, "read_posterior", lambda *_: posterior)
    return Run(bundle)


@pytest.fixture
def new():
    return random_frame("gaussian", np.random.default_rng(3), ROWS)


def test_predictions_in_pieces_are_those_of_the_whole(run, new, monkeypatch):
    found = predicting.predict(run, new)
    assert list(found["row"]) == list(range(1, ROWS + 1))
    monkeypatch.setattr(module, "PIECE", 100)
    pd.testing.assert_frame_equal(found, predicting.predict(run, new), rtol=1e-12)


@pytest.mark.parametrize("kind", ["epred", "predict"])
def test_a_backend_predicts_the_same_in_the_same_order(run, new, kind, monkeypatch):
    monkeypatch.setattr(predicting, "WAVE", 2)
    here, there = (predicting.predict(run, new, kind=kind, backend=to) for to in (None, LOCAL))
    pd.testing.assert_frame_equal(here, there)
    other = predicting.predict(run, new, kind="predict", seed=2)
    assert not np.array_equal(here["Estimate"], other["Estimate"])


def test_dropped_rows_are_counted_over_all_pieces(run, new, tmp_path):
    gaps = new.assign(x1=new["x1"].where(~new.index.isin([2, *range(5, 10), 20])))
    gaps.to_csv(tmp_path / "new.csv", index=False)
    said = []
    predicting.write_predictions(
        run, read_pieces(tmp_path / "new.csv"), tmp_path / "out.csv", drop_missing=True,
        watch=Watch(said.append),
    )  # fmt: skip
    assert said == [
        "dropped 7 of 23 rows, with missing or infinite values in x1 (7): rows 3, 6, 7, 8, 9, ..."
    ]
    found, whole = pd.read_csv(tmp_path / "out.csv"), predicting.predict(run, new)
    kept = whole[~whole["row"].isin([3, *range(6, 11), 21])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, kept, rtol=1e-9)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("kind", ["epred", "predict", "linpred"])
def test_no_rows_have_an_empty_answer_with_its_columns(run, new, kind, suffix, tmp_path):
    whole = predicting.predict(run, new, kind=kind)
    found = predicting.predict(run, new.head(0), kind=kind)
    assert len(found) == 0
    assert found.dtypes.equals(whole.dtypes)
    new.head(0).to_csv(tmp_path / "new.csv", index=False)
    to = tmp_path / f"out{suffix}", tmp_path / f"draws{suffix}"
    predicting.write_predictions(run, read_pieces(tmp_path / "new.csv"), *to, kind=kind)
    read = pd.read_csv if suffix == ".csv" else pd.read_parquet
    assert list(read(to[0]).columns) == list(whole.columns)
    assert len(read(to[0])) == len(read(to[1])) == 0
    with pytest.raises(InputError, match="which the data do not have"):
        predicting.predict(run, new.head(0).drop(columns="x1"))


@pytest.mark.parametrize("value", [5, 5.0, True, np.int8(5)])
def test_dates_in_new_rows_are_no_numbers(value):
    frame = small_frame().assign(day=pd.date_range("2024-01-01", periods=30))
    bundle, _ = small_bundle("y ~ days(day) + nn(u)", frame)
    assert len(new_rows(bundle, frame.astype({"day": str}))) == 30
    with pytest.raises(InputError, match=r"days\(day\) needs dates such as 2024-05-31"):
        new_rows(bundle, frame.assign(day=value))


def test_new_levels_are_named():
    frame = small_frame().assign(h=np.array(["001", "A03"])[np.arange(30) % 2])
    bundle, _ = small_bundle("y ~ x + (1 | h) + (1 | g) + nn(u)", frame)
    new, said = frame.assign(h=["1", "001", *map(str, range(28))], g="z"), []
    with pytest.raises(InputError, match="'h' has levels that the model was not trained on: '0'"):
        new_rows(bundle, new.assign(g="a"))
    new_rows(bundle, new, allow_new_levels=True, watch=Watch(said.append))
    shown = ", ".join(f"'{label}'" for label in sorted(map(str, range(28)))[:10])
    assert said == [
        f"new levels, drawn from the distribution of all levels: {shown}, ... (28 in all) of 'h'; "
        "'z' of 'g'"
    ]


def test_an_error_says_where_its_rows_are_and_leaves_no_file(run, new, tmp_path):
    new.loc[11, "u1"] = np.nan
    with pytest.raises(InputError, match=r"in the rows from 11 on: 1 of 5 rows have missing .* u1"):
        predicting.write_predictions(run, new, tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="no row is left"):
        predicting.predict(run, new.assign(u1=np.nan), drop_missing=True)


def test_all_draws_are_not_made_on_a_cluster(run, new, tmp_path):
    to = (tmp_path / "out.csv", tmp_path / "draws.csv")
    with pytest.raises(InputError, match="leave --draws or --cluster out"):
        predicting.write_predictions(run, new, *to, backend=LOCAL)


@pytest.mark.lengthy
def test_memory_does_not_grow_with_the_number_of_rows(run, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 250)

    def peak(rows):
        frame = random_frame("gaussian", np.random.default_rng(3), rows)
        frame.to_csv(tmp_path / "new.csv", index=False)
        del frame
        tracemalloc.start()
        try:
            predicting.write_predictions(
                run, read_pieces(tmp_path / "new.csv"), tmp_path / "out.csv"
            )
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)  # what is imported at the first use
    assert peak(5000) < 2 * peak(1000)


def test_what_was_read_of_a_parquet_file_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 10_000)
    monkeypatch.setattr(module, "BUFFER", 1 << 14)
    values = np.random.default_rng(1).normal(size=(200_000, 4))
    frame = pd.DataFrame(values, columns=[*"abcd"])
    frame.to_parquet(tmp_path / "new.parquet", row_group_size=10_000)
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in read_pieces(tmp_path / "new.parquet")]
    assert max(held) < values.nbytes / 4
