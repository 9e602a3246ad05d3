"""Chains that are there but not as they were drawn: set aside, so that they are drawn anew."""

from __future__ import annotations

from semistan.bundle.unfinished import ASIDE, set_state_aside
from semistan.errors import InputError
from semistan.infer.chain_store import chain_file, missing_chains, partial_file
from semistan.posterior.chain_csv import Chain, copied, read_chain
from semistan.posterior.draws import chain_form
from semistan.posterior.run import Run, chain_name


def set_aside(run: Run) -> list[str]:
    """Rename the chains of a run that were changed or are not whole, and say which and why.

    A chain is drawn anew from its start and its seed alone, so the same draws come again. Where
    edited files are trusted, those that are whole stay.
    """
    return [finding for member in run.members for finding in _of_member(member)]


def _of_member(member: Run) -> list[str]:
    findings, sound = [], {}
    absent = missing_chains(member.path / "chains", member.options.chain_count)
    for number in range(1, member.options.chain_count + 1):
        path = chain_file(member.path / "chains", number)
        if number in absent:
            unfinished = set_state_aside(partial_file(member.path / "chains", number))
            findings += [unfinished] if unfinished else []
            continue
        try:
            sound[path.name] = _read(member, number)
            if copied(list(sound.values())) is not None:
                del sound[path.name]
                raise InputError(f"'{path}' is a copy of another chain")
        except InputError as error:
            aside = path.with_name(path.name + ASIDE)
            path.replace(aside)
            findings.append(f"{str(error).partition(';')[0]}: set aside as {aside.name}")
    return findings


def _read(member: Run, number: int) -> Chain:
    name = chain_name(number)
    known = name in member.seal().verify(name)
    return read_chain(member.path / name, chain_form(member), known=known, remedy="")
