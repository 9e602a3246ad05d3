import re
import tomllib

import pytest

from semistan.errors import InputError
from semistan.model.config import ModelConfig, parse_config, with_overrides
from semistan.workflow.inputs import read_config, read_table, write_config
from support.small import small_frame

FORMULA = "y ~ x + nn(u)"


def refusal(content):
    with pytest.raises(InputError) as caught:
        parse_config(content, "model.toml")
    return str(caught.value)


def test_the_defaults_are_those_of_the_field():
    config = parse_config({"formula": FORMULA}, "model.toml")
    sample = config.sample
    assert (sample.metric, sample.threads, sample.kernel) == ("ggn", "auto", "auto")
    assert (sample.chains, sample.warmup, sample.draws) == (4, "auto", 1000)
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
        ({"subspace": {"k": "many"}}, "subspace.k"),
        (
            {"subspace": {"construction": "beziér"}},
            "Did you mean 'bezier'?",
        ),
        ({"sample": {"adapt_delta": 1.0}}, "sample.adapt_delta"),
        ({"sample": {"metric": "dense"}}, "'dense'"),
        ({"train": {"validation": 0.9}}, "train.validation"),
        ({"train": {"learning_rate": 0}}, "train.learning_rate"),
        ({"network": {"hidden": ["a"]}}, "network.hidden"),
        ({"network": 3}, "network"),
        ({"formula": None}, "formula"),
    ],
)
def test_a_wrong_key_or_value_is_named(content, message):
    text = refusal({"formula": FORMULA} | content)
    assert text.startswith("model.toml: ")
    assert message in text


def test_the_formula_is_needed():
    assert "the key 'formula' is needed" in refusal({})


def test_overrides_replace_dotted_keys_and_leave_the_rest():
    config = parse_config({"formula": FORMULA, "train": {"epochs": 7}}, "")
    changed = with_overrides(config, {"subspace.k": 3, "sample.seed": 9, "family": "normal"})
    assert (changed.subspace.k, changed.sample.seed, changed.family) == (3, 9, "gaussian")
    assert changed.train == config.train
    assert config.subspace.k == 8


def test_overrides_are_checked():
    config = ModelConfig(formula=FORMULA)
    with pytest.raises(InputError, match=r"sample\.chains"):
        with_overrides(config, {"sample.chains": 0})


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
        "drop_missing": True,
        "orthogonalise": "all",
        "orthogonalise_in": "model",
        "network": {"hidden": [], "activation": "relu", "frozen": 0},
        "subspace": {
            "construction": "pca", "k": 3, "select": "swag", "curvature": "kronecker",
            "snapshots": 7,
        },
        "priors": {
            "b": "student_t(3, 0, 1)", "phi": "cauchy(0, 1)", "sigma": "exponential(1)",
            "sd": "normal(0, 2)", "sds": "cauchy(0, 1)", "cor": "lkj(2)", "autoscale": False,
        },
        "train": {
            "epochs": 12, "learning_rate": 1e-5, "batch_size": 7, "validation": 0.0, "seed": 3,
            "device": "cpu",
        },
        "sample": {
            "method": "fullrank", "temperature": 2.0, "temper": "subspace",
            "chains": 2, "warmup": 3, "draws": 4, "adapt_delta": 0.95, "max_treedepth": 5,
            "metric": "diag_e", "threads": 6, "kernel": "stan", "seed": 7,
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
        (b"y,x\n", "no rows"),
        (b"y,x\n1,2\n1,2,3,4\n", "no readable CSV"),
        (b"y,x\n\xff,2\n", "no readable CSV"),
    ],
)
def test_an_unreadable_table_is_named(content, message, tmp_path):
    path = tmp_path / "data.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(str(path)) + f".*{message}"):
        read_table(path)


def test_a_table_is_read_as_pandas_writes_it(tmp_path):
    small_frame().to_csv(tmp_path / "data.csv", index=False)
    assert read_table(tmp_path / "data.csv").equals(small_frame())
