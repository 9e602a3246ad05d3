import re
import tomllib

import numpy as np
import pandas as pd
import pytest

from semistan.data.model_file import read_config, write_config
from semistan.data.tables import read_table
from semistan.errors import InputError
from semistan.model.config import (
    ModelConfig,
    NetworkConfig,
    anywhere,
    parse_config,
    with_options,
    with_overrides,
)
from support.small import small_frame

FORMULA = "y ~ x + nn(u)"


def refusal(content):
    with pytest.raises(InputError) as caught:
        parse_config(content, "model.toml")
    return str(caught.value)


def test_the_defaults_are_those_of_the_field():
    config = parse_config({"formula": FORMULA}, "model.toml")
    sample = config.sample
    assert (sample.metric, sample.threads, sample.kernel) == ("auto", "auto", "auto")
    assert (config.subspace.construction, config.subspace.k) == ("bezier", "auto")
    assert (config.priors.w, config.priors.phi) == ("normal(0, 2)", None)
    assert (sample.chains, sample.warmup, sample.draws) == ("auto", "auto", "auto")
    assert (config.family, config.network.hidden, config.network.activation) == (
        "gaussian",
        (16, 16),
        "tanh",
    )
    assert (config.priors.b, config.priors.autoscale) == ("normal(0, 2.5)", True)


def test_an_alias_is_replaced_by_the_family_it_names():
    assert parse_config({"formula": FORMULA, "family": "normal"}, "").family == "gaussian"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"famly": "poisson"}, "unknown key 'famly'. Did you mean 'family'?"),
        ({"train": {"epoch": 3}}, "unknown key 'train.epoch'. Did you mean 'epochs'?"),
        ({"network": {"hiden": [3]}}, "unknown key 'network.hiden'. Did you mean 'hidden'?"),
        ({"trian": {}}, "unknown key 'trian'. Did you mean 'train'?"),
        ({"family": "posson"}, "Did you mean 'poisson'?"),
        ({"priors": {"b": "norml(0, 1)"}}, "Did you mean 'normal'?"),
        ({"subspace": {"k": 0}}, "subspace.k"),
        (
            {"subspace": {"k": "many"}},
            "subspace.k: input should be a valid integer, or 'auto', got 'many'",
        ),
        (
            {"network": {"frozen": -1}},
            "network.frozen: input should be greater than or equal to 0, or 'auto', got -1",
        ),
        ({"network": {"skip": "so", "norm": "so"}}, "network.skip: input should be a valid bool"),
        (
            {"subspace": {"construction": "beziér"}},
            "Did you mean 'bezier'?",
        ),
        ({"sample": {"adapt_delta": 1.0}}, "sample.adapt_delta"),
        ({"sample": {"metric": "dense"}}, "'dense'"),
        ({"train": {"validation": 0.9}}, "train.validation"),
        ({"train": {"learning_rate": 0}}, "train.learning_rate"),
        ({"network": {"hidden": ["a"]}}, "network.hidden"),
        (
            {"network": {"hidden": [3, 0]}},
            "network.hidden.1: input should be greater than or equal to 1, got 0",
        ),
        ({"subspace": {"k": "3"}}, "subspace.k: input should be a valid integer, or 'auto', got"),
        ({"train": {"seed": True}}, "train.seed: input should be a valid integer, got True"),
        ({"train": {"epochs": 3.0}}, "train.epochs: input should be a valid integer, got 3.0"),
        (
            {"train": {"learning_rate": "0.1"}},
            "input should be a valid number, or 'auto', got '0.1'",
        ),
        ({"network": {"frozen": True}}, "a valid integer, or 'auto', got True"),
        ({"drop_missing": "yes"}, "drop_missing: input should be a valid boolean, got 'yes'"),
        ({"priors": {"autoscale": 1}}, "priors.autoscale: input should be a valid boolean, got 1"),
        ({"network": 3}, "network"),
        ({"formula": None}, "formula"),
    ],
)
def test_a_wrong_key_or_value_is_named(content, message):
    text = refusal({"formula": FORMULA} | content)
    assert text.startswith("model.toml: ")
    assert message in text


def test_numbers_of_numpy_and_lists_are_taken():
    config = parse_config(
        {
            "formula": FORMULA,
            "network": {"hidden": [np.int64(3), 4]},
            "subspace": {"k": np.int32(2)},
            "train": {"learning_rate": np.float64(0.5), "validation": 0},
        },
        "",
    )
    assert config.network.hidden == (3, 4)
    assert (config.subspace.k, config.train.learning_rate, config.train.validation) == (2, 0.5, 0)
    assert parse_config({"formula": FORMULA, "network": {"hidden": np.array([5])}}, "") == (
        parse_config({"formula": FORMULA, "network": {"hidden": [5]}}, "")
    )


def test_a_wrong_option_of_one_network_is_named():
    expected = r"frozen: input should be greater than or equal to 0, or 'auto', got -1"
    with pytest.raises(InputError, match=expected):
        with_options(NetworkConfig(), {"frozen": -1})


def test_the_formula_is_needed():
    assert "the key 'formula' is needed" in refusal({})


def test_overrides_replace_dotted_keys_and_leave_the_rest():
    config = parse_config({"formula": FORMULA, "train": {"epochs": 7}}, "")
    changed = with_overrides(config, {"subspace.k": 3, "sample.seed": 9, "family": "normal"})
    assert (changed.subspace.k, changed.sample.seed, changed.family) == (3, 9, "gaussian")
    assert changed.train == config.train
    assert config.subspace.k == "auto"


def test_overrides_are_checked():
    config = ModelConfig(formula=FORMULA)
    with pytest.raises(InputError, match=r"sample\.chains"):
        with_overrides(config, {"sample.chains": 0})


@pytest.mark.parametrize(
    "text",
    ["y ~ s(x, k=5) + nn(u), nu = 4, sigma ~ z", "bf(y ~ s(x, k=5) + nn(u), sigma ~ z, nu=4)"],
)
def test_what_the_formula_fixes_is_a_constant_prior(text):
    config = parse_config({"formula": text, "family": "student"}, "here")
    assert config.formula == "y ~ s(x, k=5) + nn(u), sigma ~ z"
    assert config.priors.nu == "constant(4)"
    assert with_overrides(config, {"formula": text}) == config
    changed = with_overrides(config, {"priors.nu": "gamma(2, 0.1)"})
    assert changed.priors.nu == "gamma(2, 0.1)"


@pytest.mark.parametrize(
    ("formula", "priors", "message"),
    [
        ("y ~ nn(u), nu = 4, nu = 5", {}, "'nu' is fixed twice"),
        ("y ~ nn(u), nu = 4", {"nu": "gamma(2, 1)"}, "fixes 'nu' at 4, and prior 'nu' is 'gamma"),
        ("y ~ nn(u), b = 4", {}, "leave the term out"),
    ],
)
def test_what_cannot_be_fixed_is_refused(formula, priors, message):
    with pytest.raises(InputError, match=message):
        parse_config({"formula": formula, "family": "student", "priors": priors}, "here")


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        ModelConfig(formula=FORMULA).formula = "other"


NASTY = [
    'y ~ `a "b"` + nn(u)',
    "y ~ `a\\b` + nn(u)",
    "y ~ größe + nn(u)",
    "y ~ x\n  + nn(u)",
    "y ~ x\t+ nn(u)",
    "y ~ `a\x0bb` + nn(u)",
    "y ~ `#` + nn('[x]')",
]


@pytest.mark.parametrize("formula", NASTY)
def test_any_formula_survives_the_file(formula, tmp_path):
    config = ModelConfig(formula=formula)
    write_config(config, tmp_path / "model.toml")
    assert read_config(tmp_path / "model.toml") == config


def test_every_key_survives_the_file(tmp_path):
    content = {
        "formula": FORMULA,
        "family": "poisson",
        "data": str(tmp_path / "data.csv"),
        "sep": ";",
        "decimal": ",",
        "encoding": "cp1252",
        "drop_missing": True,
        "orthogonalise": "all",
        "orthogonalise_in": "model",
        "network": {
            "kind": "mlp", "hidden": [], "activation": "relu", "channels": [4, 6], "kernel": 5,
            "pooling": 3, "frozen": 0, "skip": True, "norm": True,
        },
        "subspace": {
            "construction": "pca", "k": 3, "curve": 2, "select": "swag", "curvature": "kronecker",
            "snapshots": 7, "free": "output", "subspaces": 3, "weights": "stacking",
            "completion": "none",
        },
        "priors": {
            "b": "student_t(3, 0, 1)", "w": "normal(0, 3)", "Intercept": "normal(0, 4)",
            "phi": "cauchy(0, 1)", "sigma": "exponential(1)",
            "sd": "normal(0, 2)", "sds": "cauchy(0, 1)", "cor": "lkj(2)", "autoscale": False,
            "sdgp": "normal(0, 3)", "lscale": "inv_gamma(2, 0.3)", "simo": "dirichlet(2)",
            "sd_w": "none",
        },
        "train": {
            "epochs": 12, "steps": 70, "learning_rate": 1e-5, "batch_size": 7,
            "validation": 0.0, "seed": 3, "device": "cpu",
        },
        "sample": {
            "method": "fullrank", "temperature": 2.0, "temper": "subspace",
            "chains": 2, "warmup": 3, "draws": 4, "adapt_delta": 0.99, "max_treedepth": 5,
            "metric": "diag_e", "threads": 6, "kernel": "stan", "seed": 7, "budget": 2.5,
            "integrate": "auto",
            "starts": "prior", "backend": "dask", "cluster": "tcp://host:8786",
        },
    }  # fmt: skip
    config = parse_config(content, "")
    write_config(config, tmp_path / "model.toml")
    assert read_config(tmp_path / "model.toml") == config
    written = tomllib.loads((tmp_path / "model.toml").read_text("utf-8"))
    assert written == content  # so that nothing above is a default in disguise


def test_the_path_of_the_data_counts_from_the_file(tmp_path, monkeypatch):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "model.toml").write_text(f'formula = "{FORMULA}"\ndata = "../data.csv"\n')
    monkeypatch.chdir("/")
    assert read_config(folder / "model.toml").data == str((tmp_path / "data.csv").resolve())


def test_an_absolute_path_of_the_data_is_kept(tmp_path):
    path = tmp_path / "elsewhere" / "data.csv"
    (tmp_path / "model.toml").write_text(f'formula = "{FORMULA}"\ndata = "{path}"\n')
    assert read_config(tmp_path / "model.toml").data == str(path.resolve())


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "does not exist"), (b"formula = ", "no valid TOML"), (b"\xff", "no valid TOML")],
)
def test_an_unreadable_file_is_named(content, message, tmp_path):
    path = tmp_path / "model.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(str(path)) + f".*{message}"):
        read_config(path)


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(InputError, match="is no file"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"y,x\n1,2\n1,2,3,4\n", "no readable CSV"),
        (b"y,x\n\x81,2\n", "not encoded as cp1252"),
    ],
)
def test_an_unreadable_table_is_named(content, message, tmp_path):
    path = tmp_path / "data.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(str(path)) + f".*{message}"):
        read_table(path)


@pytest.mark.parametrize(
    "content",
    [
        "y,x,u\na,2,3,4\nb,6,7,8\n",
        "y,x\n0,2,3\n1,5,6\n",  # the first fields look like pandas's own index
        '"y","x"\n"1",2,3\n"2",5,6\n',  # as R's write.table() writes row names
        "y\n1,2,3\n4,5,6\n",
        "y,x\n1,2,3\n4,5\n",
        "y,x\n1,2,\n3,4,5\n",
    ],
)
def test_a_table_with_more_fields_than_names_is_refused(content, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=r"more fields than its header.*row.names = FALSE"):
        read_table(path)


@pytest.mark.parametrize(
    ("header", "repeated"),
    [
        ("y,x,x,u", r"'x' \(2\);"),
        ("x,u,x,x", r"'x' \(3\);"),
        ('x,"x",x.1,x.1', r"'x' \(2\), 'x.1' \(2\);"),
        ("\n\ny,NA,u,NA", r"'NA' \(2\);"),
        ('y,"odd\nname",u,"odd\nname"', r"'odd\nname' \(2\);"),
    ],
)
def test_a_name_of_several_columns_is_refused(header, repeated, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(f"{header}\n1,2,3,4\n5,6,7,8\n")
    with pytest.raises(InputError, match=f"{re.escape(str(path))}' has several.*: {repeated}"):
        read_table(path)


def same_values(found, expected):
    assert list(found.index) == list(expected.index)
    found, expected = (table.reset_index(drop=True) for table in (found, expected))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_exact=True)


@pytest.mark.parametrize("names", [["x", "x.1", "x.2.1"], ["x.1", "x.1.1", "x.1.2"]])
def test_names_with_numbers_are_names_of_their_own(names, tmp_path):
    frame = pd.DataFrame([[1, 2, 3], [4, 5, 6]], columns=names)
    frame.to_csv(tmp_path / "data.csv", index=False)
    same_values(read_table(tmp_path / "data.csv"), frame)


def test_columns_without_a_name_do_no_harm(tmp_path):
    (tmp_path / "data.csv").write_text(",y,x,\n1,2,3,\n4,5,6,\n")
    frame = read_table(tmp_path / "data.csv")
    assert frame[["y", "x"]].to_numpy().tolist() == [[2, 3], [5, 6]]


def test_commas_that_end_rows_are_no_fields(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("y,x\n1,2,\n3,4,\n")
    same_values(read_table(path), pd.DataFrame({"y": [1, 3], "x": [2, 4]}))


def test_row_names_of_write_csv_are_a_column_without_a_name(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('"","y","x"\n"1",2,3\n"2",5,6\n')
    frame = read_table(path)
    assert frame[["y", "x"]].to_numpy().tolist() == [[2, 3], [5, 6]]


def test_a_parquet_table_may_have_an_index(tmp_path):
    frame = small_frame().set_index("u", drop=False).rename_axis("row")
    frame.to_parquet(tmp_path / "data.parquet")
    same_values(read_table(tmp_path / "data.parquet"), frame)


def test_a_table_is_read_as_pandas_writes_it(tmp_path):
    small_frame().to_csv(tmp_path / "data.csv", index=False)
    same_values(read_table(tmp_path / "data.csv"), small_frame())


@pytest.mark.parametrize(
    ("backend", "cluster", "where"),
    [
        ("auto", None, None), ("local", None, None), ("dask", None, "local"),
        ("auto", "slurm", "slurm"), ("dask", "slurm", "slurm"), ("local", "slurm", None),
    ],
)  # fmt: skip
def test_a_cluster_is_where_dask_works_unless_work_stays_here(backend, cluster, where):
    given = {"sample.backend": backend, "sample.cluster": cluster}
    config = with_overrides(ModelConfig(formula=FORMULA), given)
    assert config.sample.where == where
    assert anywhere(config) == ModelConfig(formula=FORMULA)


def test_a_schedulers_file_counts_from_the_folder_of_the_model(tmp_path):
    text = 'formula = "y ~ x"\n[sample]\nbackend = "dask"\ncluster = "{}"\n'
    for written, where in (
        ("scheduler.json", str(tmp_path / "scheduler.json")), ("tcp://h:1", "tcp://h:1")
    ):  # fmt: skip
        (tmp_path / "model.toml").write_text(text.format(written))
        assert read_config(tmp_path / "model.toml").sample.where == where
