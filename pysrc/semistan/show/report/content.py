"""Everything that a page shows, as one frozen value."""

from __future__ import annotations

from semistan.model.bundle import Bundle
from semistan.model.formula.patterns import shortened
from semistan.show.report.blocks import Notice, Report
from semistan.show.report.coefficients import coefficients_section
from semistan.show.report.evidence import Evidence
from semistan.show.report.fitted import fitted_section
from semistan.show.report.learnt import checks_section, effects_section, subspace_section
from semistan.show.report.reproduce import cite_section, program_section, reproduce_section
from semistan.show.report.results import Results
from semistan.show.report.sampling import sampling_section, verdict_notice
from semistan.words import count


def report_content(results: Results, evidence: Evidence) -> Report:
    """Collect the page's content.

    Parameters
    ----------
    results : Results
        A finished run.
    evidence : Evidence
        The pictures and tables that were computed from it.
    """
    checks = () if results.prior_only else (checks_section(results, evidence),)
    return Report(
        title=_title(results),
        formula=shortened(results.bundle.config.formula),
        glance=_glance(results),
        notices=(
            *_prior_notice(results),
            *_reservation_notice(results),
            *verdict_notice(results.summary),
        ),
        sections=(
            fitted_section(results),
            coefficients_section(results, evidence),
            sampling_section(results, evidence),
            effects_section(results, evidence),
            *checks,
            subspace_section(results, evidence),
            program_section(results),
            cite_section(results),
            reproduce_section(results),
        ),
        colophon=f"Written by semistan {results.manifest.semistan}.",
    )


def _title(results: Results) -> str:
    prior = "Prior of a semi" if results.prior_only else "Semi"
    return f"{prior}-structured regression of {results.formula.response}"


def _glance(results: Results) -> tuple[str, ...]:
    options, bundle, members = results.options, results.bundle, len(results.posterior.members)
    chains = sum(member.chains for member in results.posterior.members)
    failed = len(results.summary.failed)
    agreed = "pooled modes" if results.summary.modes else "all diagnostics passed"
    return (
        f"{bundle.family.name}, link {bundle.family.link}",
        count(len(results.rows), "row"),
        _dimension(bundle),
        *([count(members, "subspace")] if members > 1 else []),
        f"{chains} \N{MULTIPLICATION SIGN} {options.per_chain:,} draws",
        *results.posterior.reservations,
        f"{count(failed, 'diagnostic')} failed" if failed else agreed,
    )


def _dimension(bundle: Bundle) -> str:
    d = f"{bundle.subspace.d:,}"
    return (
        f"all {d} weights" if bundle.model.moves == "all" else f"k = {bundle.subspace.k} of d = {d}"
    )


def _reservation_notice(results: Results) -> tuple[Notice, ...]:
    if not results.posterior.reservations:
        return ()
    items = tuple(
        ("", f"Every figure of this page is {r}.") for r in results.posterior.reservations
    )
    return (Notice("warning", "These are not draws from the posterior", items),)


def _prior_notice(results: Results) -> tuple[Notice, ...]:
    if not results.prior_only:
        return ()
    text = (
        "The likelihood was left out: every figure of this page shows what the priors and the "
        "subspace say before the response is used. Checks against the response and "
        "leave-one-out are left out."
    )
    return (Notice("note", "These are draws from the prior, not from a posterior", (("", text),)),)
