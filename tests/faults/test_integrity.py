"""Files changed on purpose or by mistake: named, with what to do, and trusted on request."""

import json
import shutil

import numpy as np
import pytest

import semistan
from semistan.bundle.bundle import read_bundle
from semistan.bundle.seal import write_record
from semistan.errors import InputError
from semistan.infer.chain_store import partial_file
from semistan.posterior.posterior import read_posterior
from semistan.posterior.run import read_run
from semistan.workflow.check import check
from semistan.workflow.sample import read_fitted, sample
from semistan.workflow.watch import Watch
from support.command import command_in
from support.sealed import rewrite
from support.small import small_frame

REDRAW = "semistan sample"


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def edit(path, change):
    """Change JSON in place, as an editor would: without its seal."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def chain(run, number=2):
    return run / "chains" / f"chain-{number}.csv"


def change_lines(path, change):
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def of_table(lines):
    """Positions of the header and of the draws among the lines of a chain's file."""
    return [i for i, line in enumerate(lines) if not line.startswith("#")]


def with_cell(cell):
    def change(lines):
        where = of_table(lines)[5]
        cells = lines[where].rstrip("\n").split(",")
        lines[where] = ",".join([*cells[:-1], cell]) + "\n"
        return lines

    return change


def shorter(lines):
    where = set(of_table(lines)[-3:])
    return [line for i, line in enumerate(lines) if i not in where]


def renamed(lines):
    header = of_table(lines)[0]
    lines[header] = lines[header].replace("lprior", "lpriors")
    return lines


def ragged(lines):
    last = of_table(lines)[-1]
    lines[last] = lines[last].replace(",", ",1,", 1)
    return lines


def cut_in_the_last_draw(lines):
    last = of_table(lines)[-1]
    return [*lines[:last], lines[last][:-4]]


SPOILT = {
    "short": (shorter, "27 draws, expected 30"),
    "nan": (with_cell("nan"), "expected a number"),
    "empty": (with_cell(""), "expected a number"),
    "inf": (with_cell("inf"), "expected a number"),
    "text": (with_cell("abc"), "'abc' in draw 5, expected a number"),
    "renamed": (renamed, "no column 'lprior'"),
    "ragged": (ragged, "numbers, expected"),
    "cut": (cut_in_the_last_draw, "cut off in its last line"),
    "nothing": (lambda _: [], "is empty|No columns"),
}


@pytest.mark.parametrize(("change", "finding"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_chain_is_named_also_where_it_is_trusted(run, change, finding):
    change_lines(chain(run), change)
    with pytest.raises(InputError, match="does not match its hash") as caught:
        read_fitted(run)
    assert "chain-2.csv" in str(caught.value)
    assert REDRAW in str(caught.value)
    with semistan.trust_edited(), pytest.raises(InputError, match=finding):
        read_fitted(run)


def test_a_chain_copied_from_another_is_named_and_drawn_anew(run):
    whole = chain(run).read_bytes()
    shutil.copy(chain(run, 1), chain(run))
    with pytest.raises(InputError, match=r"is a copy of chains/chain-1|says that it is chain 1"):
        read_posterior(run)
    said = []
    sample(read_run(run), watch=Watch(said.append))
    assert any("set aside as chain-2.csv.damaged" in line for line in said)
    assert chain(run).read_bytes() == whole
    assert (run / "chains" / "chain-2.csv.damaged").read_bytes() == chain(run, 1).read_bytes()


def test_a_damaged_state_of_an_unfinished_chain_is_set_aside(run):
    """The chain is drawn from its start then, to the same draws."""
    whole, partial = chain(run).read_bytes(), partial_file(run / "chains", 2)
    chain(run).unlink()

    def stop(*now):
        if now[1] == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample(read_run(run), watch=Watch(chains=stop))
    state = partial.read_bytes()
    partial.write_bytes(state[:-500] + bytes([state[-500] ^ 1]) + state[-499:])
    said = []
    sample(read_run(run), watch=Watch(said.append))
    assert any("set aside as .chain-2.partial.npz.damaged" in line for line in said)
    assert chain(run).read_bytes() == whole


def test_a_changed_digit_of_a_chain_is_named_and_trusted_on_request(run, finished):
    change_lines(chain(run), with_cell("1000"))
    with pytest.raises(InputError, match=r"does not match its hash.*--trust-edited"):
        read_posterior(run)
    with semistan.trust_edited() as edited:
        draws = read_posterior(run).draws
    assert edited == [str(chain(run))]
    sound = read_posterior(finished).draws
    assert np.max(draws.coefficients["b_x"]) == 1000 > np.max(sound.coefficients["b_x"])


CHANGES = {
    "temperature": lambda content: content["sample"].update(temperature=2.0),
    "prior_only": lambda content: content.update(prior_only=True),
    "method": lambda content: content["sample"].update(method="nuts"),
    "draws": lambda content: content["sample"].update(draws=29),
    "chains": lambda content: content["sample"].update(chains=1),
    "a new key": lambda content: content.update(weights=[1.0]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_manifest_is_detected(run, change):
    edit(run / "manifest.json", change)
    with pytest.raises(InputError, match=r"manifest\.json' does not match the hash in it"):
        read_run(run)


def test_a_trusted_manifest_is_believed(run):
    edit(run / "manifest.json", CHANGES["temperature"])
    with semistan.trust_edited():
        assert read_run(run).options.temperature == 2.0


BUNDLE_CHANGES = {
    "eta_units.loc": lambda content: content["eta_units"].update(loc=100.0),
    "eta_units.scale": lambda content: content["eta_units"].update(scale=2.0),
    "activation": lambda content: content["config"]["network"].update(activation="relu"),
    "hidden": lambda content: content["config"]["network"].update(hidden=[4]),
    "priors": lambda content: content["config"]["priors"].update(phi="normal(0, 9)"),
    "formula": lambda content: content["config"].update(formula="y ~ x + nn(v, u)"),
    "dispersion": lambda content: content["dispersion"].update(sigma=9.0),
}


@pytest.mark.parametrize("change", BUNDLE_CHANGES.values(), ids=BUNDLE_CHANGES)
def test_a_changed_bundle_is_detected_by_itself_and_in_its_run(run, change):
    edit(run / "bundle" / "bundle.json", change)
    with pytest.raises(InputError, match=r"bundle\.json' does not match"):
        read_bundle(run / "bundle")
    with pytest.raises(InputError, match=r"bundle\.json' does not match"):
        semistan.predict(run, small_frame()[:2])


def test_another_graph_is_detected_where_it_computes(run):
    path = run / "bundle" / "predictor.onnx"
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    semistan.predict(run, small_frame()[:2])
    with pytest.raises(InputError, match=r"predictor\.onnx' does not match its hash"):
        semistan.predict(run, small_frame()[:2], engine="onnx")


@pytest.mark.parametrize("name", ["labels.json", "inits-1.json", "metric-2.json", "data.json"])
def test_what_chains_and_r_are_made_from_is_held_to_its_hash(run, name):
    edit(run / name, lambda content: content.update(extra=1))
    with pytest.raises(InputError, match=f"{name}' does not match its hash"):
        read_run(run)


NESTED = "[" * 100_000 + "]" * 100_000
MANIFESTS = {
    "a list": "[]", "a number": "3", "null": "null", "nothing": "", "deep": NESTED,
    "deep within": f'{{"format_version": 3, "files": {{}}, "x": {NESTED}}}',
    "a large integer": f'{{"format_version": {"9" * 5000}}}',
    "version a string": '{"format_version": "3"}', "nan": '{"format_version": NaN}',
    "a key twice": '{"format_version": 3, "format_version": 1}',
    "no seal": '{"format_version": 3}', "files a list": '{"format_version": 3, "files": []}',
    "a file outside": '{"format_version": 3, "files": {"../x": {"sha256": "' + "0" * 64 + '"}}}',
    "no utf-8": b"\xff\xfe",
}  # fmt: skip


@pytest.mark.parametrize("name", ["manifest.json", "bundle/bundle.json"])
@pytest.mark.parametrize("text", MANIFESTS.values(), ids=MANIFESTS)
def test_a_damaged_record_is_an_error_of_ours(run, name, text):
    (run / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=r"damaged|does not match"):
        read_run(run)
    assert not check(run).passed
    with semistan.trust_edited(), pytest.raises(InputError, match="damaged"):
        read_run(run)


FORGED = {
    "no sample": (lambda content: content.pop("sample"), "lacks 'sample'"),
    "no bundle": (lambda content: content.pop("bundle_sha256"), "lacks 'bundle_sha256'"),
    "unknown option": (lambda content: content["sample"].update(x=1), "unknown key 'sample.x'"),
    "unknown key": (lambda content: content.update(x=1), "unknown key 'x'"),
    "plan": (lambda content: content["plan"].update(chains="2"), "plan.chains"),
    "kernel": (lambda content: content.update(kernel="sh"), "kernel"),
    "prior_only": (lambda content: content.update(prior_only="no"), "prior_only"),
}


@pytest.mark.parametrize(("change", "message"), FORGED.values(), ids=FORGED)
def test_a_manifest_of_another_form_is_refused_whatever_its_seal(run, change, message):
    rewrite(run, lambda content: change(content) and None)
    with pytest.raises(InputError, match=f"damaged.*{message}"):
        read_run(run)


FORGED_BUNDLES = {
    "no design": (lambda content: content.update(design=None), "damaged"),
    "source": (lambda content: content.update(source={"path": 1}), "damaged"),
    "unknown key": (lambda content: content.update(x=1), "unknown key 'x'"),
    "hidden": (lambda content: content["config"]["network"].update(hidden=[4]), "expected p_bar"),
    "scale": (lambda content: content["eta_units"].update(scale=0.0), "positive units"),
    "text": (lambda content: content["eta_units"].update(loc="0"), "expected a number"),
    "subspace": (lambda content: content.update(subspace=[]), "damaged"),
}


@pytest.mark.parametrize(("change", "message"), FORGED_BUNDLES.values(), ids=FORGED_BUNDLES)
def test_a_bundle_of_another_form_is_refused_whatever_its_seal(run, change, message):
    rewrite(run / "bundle", lambda content: change(content) and None)
    with pytest.raises(InputError, match=message):
        read_bundle(run / "bundle")


ARRAYS = {
    "nan": ("Pi", lambda a: a * np.nan, "finite numbers in Pi"),
    "phi_scale": ("phi_scale", lambda a: 0 * a, "positive numbers in phi_scale"),
    "theta": ("theta", lambda a: np.append(a, 1.0), r"expected theta \(1\), got \(2\)"),
    "p_bar": ("p_bar", lambda a: a[:-1], "damaged"),
    "control points": ("control_points", lambda a: a[:, :-1], "expected control_points"),
    "a matrix": ("u_loc", lambda a: a[None], r"expected u_loc \(2\), got \(1, 2\)"),
}


@pytest.mark.parametrize(("name", "change", "message"), ARRAYS.values(), ids=ARRAYS)
def test_arrays_of_another_form_are_refused_whatever_their_hash(run, name, change, message):
    from semistan.model.bundle import arrays_hash

    path = run / "bundle" / "arrays.npz"
    with np.load(path) as file:
        arrays = dict(file)
    arrays[name] = change(arrays[name])
    np.savez(path, **arrays)
    rewrite(run / "bundle", lambda content: content.update(sha256=arrays_hash(arrays)))
    with pytest.raises(InputError, match=message):
        read_bundle(run / "bundle")


def test_another_format_is_refused_with_what_to_do(run):
    for version, remedy in ((1, "fit anew"), (99, "upgrade semistan")):
        edit(run / "manifest.json", lambda content, v=version: content.update(format_version=v))
        with pytest.raises(InputError, match=f"has run format {version}, .*{remedy}"):
            read_run(run)


def test_a_seal_is_the_same_however_the_record_is_written(run):
    path = run / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(content.items()))))
    assert check(run).passed


def test_the_manifest_has_hash_size_and_rows_of_every_file(run):
    files = json.loads((run / "manifest.json").read_text())["files"]
    there = {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()}
    assert set(files) == there - {"manifest.json"}
    assert all(files[name]["bytes"] == (run / name).stat().st_size for name in files)
    assert files["chains/chain-1.csv"]["rows"] == 30
    assert files["training.parquet"]["rows"] == len(small_frame())


def test_a_chain_that_the_manifest_does_not_know_is_not_believed(run):
    path = run / "manifest.json"
    content = json.loads(path.read_text())
    stamps = semistan.posterior.manifest.seal_of(run).stamps
    kept = {name: stamp for name, stamp in stamps.items() if name != "chains/chain-2.csv"}
    write_record(path, content, kept)
    with pytest.raises(InputError, match=r"manifest\.json does not know of it"):
        read_posterior(run)


def test_the_command_checks_and_trusts(run, tmp_path, monkeypatch, capsys):
    command = command_in(tmp_path, monkeypatch, capsys)
    code, out, _ = command("check", "run", "--json")
    assert code == 0
    assert {line["state"] for line in json.loads(out)["rows"]} == {"unchanged"}
    change_lines(chain(run), with_cell("7"))
    (run / "inits-1.json").unlink()
    code, out, _ = command("check", "run", "--json")
    states = {line["file"]: line["state"] for line in json.loads(out)["rows"]}
    assert code == 2
    assert states.pop("chains/chain-2.csv") == "changed"
    assert states.pop("inits-1.json") == "missing"
    assert set(states.values()) == {"unchanged"}
    code, _, err = command("check", tmp_path)
    assert (code, "neither a run nor a bundle" in err) == (2, True)


def test_every_command_that_reads_a_run_can_trust(run, tmp_path, monkeypatch, capsys):
    command = command_in(tmp_path, monkeypatch, capsys)
    edit(run / "labels.json", lambda content: content.update(extra="b_x"))
    small_frame()[:3].to_csv(tmp_path / "new.csv", index=False)
    for arguments in (["summary", "run"], ["predict", "run", "--newdata", "new.csv"]):
        code, _, err = command(*arguments)
        assert (code, "labels.json" in err) == (2, True)
        code, _, err = command(*arguments, "--trust-edited")
        assert code in (0, 3)
        assert "does not match its hash: taken as it is" in " ".join(err.split())
