"""Bytes flipped and files cut at random, seeded: each is detected or harmless, none is silent.

The run's chains are drawn by PyTorch, so that nothing is compiled, also where a chain is redrawn.
"""

import shutil

import numpy as np
import pytest

import semistan
from semistan.bundle.bundle import MARKER as BUNDLE
from semistan.bundle.files import read_json
from semistan.errors import InputError
from semistan.posterior.manifest import MARKER as RUN
from semistan.workflow.check import check
from support.damage import READERS, Tally, flip, sample, sample_bundle, truncate

RECORDS = (RUN, BUNDLE)


def files_of(folder):
    """The files of a folder, in an order that does not depend on the machine."""
    return sorted(
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def damaged_copy(folder, to, damage, generator):
    """Copy a folder with one of its files damaged, and say which and where."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    names = files_of(folder)
    name = names[int(generator.integers(len(names)))]
    content, place = damage((folder / name).read_bytes(), generator)
    (to / name).write_bytes(content)
    return f"{damage.__name__} of {name.as_posix()} at {place}"


def judged(folder, readers, tmp_path, seed, *, flips, truncations, trusted=False):
    """Damage a folder many times, and count what each reader makes of it."""
    tally, generator = Tally(), np.random.default_rng(seed)
    expected = {}
    for reader in readers:
        shutil.copytree(folder, tmp_path / "sound" / folder.name)
        expected[reader] = reader(tmp_path / "sound" / folder.name).to_csv()
        shutil.rmtree(tmp_path / "sound")
    for damage in (flip,) * flips + (truncate,) * truncations:
        copy = tmp_path / "damaged" / folder.name
        where = damaged_copy(folder, copy, damage, generator)
        for reader in readers:
            if trusted:
                with semistan.trust_edited():
                    tally.judge(where, reader, copy, None)
            else:
                tally.judge(where, reader, copy, expected[reader])
    return tally


def report(name, flips, truncations, tally):
    print(f"\n{name}: {flips} flips and {truncations} truncations, {tally}")
    assert tally.wrong == []


@pytest.mark.lengthy
def test_some_damages_of_a_run_and_a_bundle_are_detected_or_harmless(finished, tmp_path):
    report("a run", 40, 10, judged(finished, READERS[:-1], tmp_path, 1, flips=40, truncations=10))
    bundle = finished / "bundle"
    report("a bundle", 8, 2, judged(bundle, (sample_bundle,), tmp_path, 2, flips=8, truncations=2))


@pytest.mark.lengthy
@pytest.mark.parametrize("name", ["chain-1.csv", "chain-2.csv"])
def test_a_damaged_chain_is_drawn_anew_with_the_same_draws(finished, tmp_path, name):
    run = shutil.copytree(finished, tmp_path / "run")
    generator = np.random.default_rng(3)
    path = run / "chains" / name
    whole = path.read_bytes()
    expected = sample(run).to_csv()
    for damage in (flip, truncate):
        path.write_bytes(damage(whole, generator)[0])
        assert sample(run).to_csv() == expected
        assert path.read_bytes() == whole
        assert check(run).passed


@pytest.mark.faults
def test_damages_of_a_run_are_detected_or_harmless(finished, tmp_path):
    tally = judged(finished, READERS, tmp_path, 4, flips=850, truncations=170)
    report("a run", 850, 170, tally)


@pytest.mark.faults
def test_damages_of_a_bundle_are_detected_or_harmless(finished, tmp_path):
    readers = (sample_bundle,)
    tally = judged(finished / "bundle", readers, tmp_path, 5, flips=150, truncations=30)
    report("a bundle", 150, 30, tally)


@pytest.mark.faults
def test_damages_that_are_trusted_end_in_no_traceback(finished, tmp_path):
    """Whatever the hashes say, what is read must have its form."""
    tally = judged(finished, READERS, tmp_path, 6, flips=200, truncations=50, trusted=True)
    report("a run that is trusted", 200, 50, tally)


def says_the_same(finished, tmp_path, name):
    """Whether a record, whose hash is of its content, still has that: 1E-5 for 1e-5, say."""
    whole, damaged = finished / name, tmp_path / "run" / name
    try:
        return whole.name in RECORDS and read_json(whole) == read_json(damaged)
    except InputError:
        return False


@pytest.mark.faults
def test_check_names_every_damaged_file(finished, tmp_path):
    generator, missed = np.random.default_rng(7), []
    for damage in (flip,) * 150 + (truncate,) * 50:
        where = damaged_copy(finished, tmp_path / "run", damage, generator)
        name = where.split(" of ")[1].split(" at ")[0]
        found = {item.file: item.state for item in check(tmp_path / "run").files}
        noticed = found.get(name) in ("changed", "damaged")
        if not (noticed or says_the_same(finished, tmp_path, name)):
            missed.append(where)
    print(f"\ncheck: 200 damages, {len(missed)} missed")
    assert missed == []
