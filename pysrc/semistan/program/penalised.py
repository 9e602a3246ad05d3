"""Smooths and group-level terms in the program: data, parameters, what they add to eta.

Both are penalised coefficients with sampled standard deviations, non-centred:

    s = sds zs,            r = z (diag(sd) L)',       zs, z ~ normal(0, 1),

for a smooth's m coefficients and for a group's levels times effects, with L the Cholesky factor of
the effects' correlation matrix, or 1 where they are not correlated.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent
from typing import Any

from semistan.model.bundle import Bundle
from semistan.model.design import Design
from semistan.model.table.rows import Rows
from semistan.model.terms.group import Group
from semistan.model.terms.names import coefficient_columns
from semistan.program.layout import WIDTH, call

Lines = list[tuple[str, str]]


def penalised_data_lines(design: Design) -> Lines:
    """Declare the bases of the smooths, and the levels and columns of the groups."""
    lines: Lines = []
    for i, smooth in enumerate(design.smooths, start=1):
        lines += [
            (f"int<lower=1> m_{i};", f"penalised coefficients of s({smooth.expression})"),
            (f"matrix[N, m_{i}] Zs_{i};", f"basis of s({smooth.expression})"),
        ]
    for i, group in enumerate(design.groups, start=1):
        lines += [
            (f"int<lower=1> N_{i};", f"levels of {':'.join(group.by)}"),
            (f"array[N] int<lower=1, upper=N_{i}> J_{i};", "level of each row"),
        ]
        if not only_intercept(group):
            lines += [
                (f"int<lower=1> M_{i};", "effects that vary by level"),
                (f"matrix[N, M_{i}] Z_{i};", "what they multiply"),
            ]
    return lines


def penalised_data(bundle: Bundle, rows: Rows) -> dict[str, Any]:
    """Return the values of ``penalised_data_lines`` for the rows."""
    data: dict[str, Any] = {}
    design = bundle.design
    smooths = rows.blocks[: len(design.smooths)]
    groups = rows.blocks[len(design.smooths) :]
    for i, block in enumerate(smooths, start=1):
        data |= {f"m_{i}": block.Z.shape[1], f"Zs_{i}": block.Z}
    for i, (group, block) in enumerate(zip(design.groups, groups, strict=True), start=1):
        data |= {f"N_{i}": len(group.levels), f"J_{i}": block.level + 1}
        if not only_intercept(group):
            data |= {f"M_{i}": group.size, f"Z_{i}": block.Z}
    return data


def penalised_names(design: Design) -> list[tuple[str, str]]:
    """Return the names of each term's columns and levels in the data, empty where it has none."""
    smooths = [(f"Zs_{i}", "") for i in range(1, len(design.smooths) + 1)]
    groups = [
        ("" if only_intercept(group) else f"Z_{i}", f"J_{i}")
        for i, group in enumerate(design.groups, start=1)
    ]
    return smooths + groups


def penalised_parameters(design: Design) -> Lines:
    """Declare what is sampled besides the standard deviations."""
    lines: Lines = []
    for i, smooth in enumerate(design.smooths, start=1):
        lines.append((f"vector[m_{i}] zs_{i};", f"s({smooth.expression}), standardised"))
    for i, group in enumerate(design.groups, start=1):
        M = effects(group, i)
        lines.append((f"matrix[N_{i}, {M}] z_{i};", f"effects of {group.name}, standardised"))
        if group.correlated:
            text = f"Cholesky factor of the correlations of {group.name}"
            lines.append((f"cholesky_factor_corr[{M}] L_{i};", text))
    return lines


def penalised_coefficients(design: Design) -> Lines:
    """Declare the coefficients that the parameters make."""
    lines: Lines = []
    for i, smooth in enumerate(design.smooths, start=1):
        text = f"penalised coefficients of s({smooth.expression})"
        lines.append((f"vector[m_{i}] s_{i} = {smooth.spread[0]} * zs_{i};", text))
    for i, group in enumerate(design.groups, start=1):
        lines += [
            (f"matrix[N_{i}, {effects(group, i)}] r_{i}", f"effects of the levels of {group.name}"),
            (indent(_made(group, i), "  ").rstrip(), ""),
        ]
    return lines


def penalised_densities(design: Design) -> str:
    """Return the priors of the standardised coefficients and of the correlations."""
    text = "".join(
        f"lprior += std_normal_lpdf(zs_{i});\n" for i in range(1, len(design.smooths) + 1)
    )
    for i, group in enumerate(design.groups, start=1):
        text += f"lprior += std_normal_lpdf(to_vector(z_{i}));\n"
        if group.correlated:
            text += f"lprior += lkj_corr_cholesky_lpdf(L_{i} | prior_cor_shape);\n"
    return text


def penalised_correlations(design: Design) -> Lines:
    """Declare the correlations by their names, in generated quantities."""
    lines: Lines = []
    for i, group in enumerate(design.groups, start=1):
        for name, (a, b) in zip(group.correlations, group.pairs, strict=True):
            declared, value = f"real {name}", f"= dot_product(L_{i}[{b + 1}], L_{i}[{a + 1}]);"
            fits = len(declared) + len(value) + 3 <= WIDTH
            lines.append((f"{declared} {value}" if fits else f"{declared}\n  {value}", ""))
    return lines


def penalised_arguments(design: Design) -> tuple[list[str], list[str]]:
    """Return the likelihood's arguments with their types: data, and coefficients."""
    data, coefficients = [], []
    for i in range(1, len(design.smooths) + 1):
        data.append(f"data matrix Zs_{i}")
        coefficients.append(f"vector s_{i}")
    for i, group in enumerate(design.groups, start=1):
        data.append(f"data array[] int J_{i}")
        data += [] if only_intercept(group) else [f"data matrix Z_{i}"]
        coefficients.append(f"matrix r_{i}")
    return data, coefficients


def penalised_sums(design: Design, rows: str) -> Iterator[str]:
    """Yield what each term adds to the predictor of some rows, as ``[start : end]``."""
    for i in range(1, len(design.smooths) + 1):
        yield f"Zs_{i}{rows} * s_{i}"
    for i, group in enumerate(design.groups, start=1):
        if only_intercept(group):
            yield f"r_{i}[J_{i}{rows}, 1]"
        else:
            yield f"rows_dot_product(Z_{i}{rows}, r_{i}[J_{i}{rows}])"


def only_intercept(group: Group) -> bool:
    """Say whether nothing but the intercept varies."""
    return group.intercept and group.size == 1


def effects(group: Group, number: int) -> str:
    """Return the number of a group's effects as the program has it."""
    return "1" if only_intercept(group) else f"M_{number}"


def _made(group: Group, i: int) -> str:
    if group.size == 1:
        return f"= {group.spread[0]} * z_{i};"
    first, *others, last = group.spread
    sd = [f"[{first}", *others, f"{last}]'"]
    if group.correlated:
        return call(f"= z_{i} * diag_pre_multiply", [*sd, f"L_{i}"], "';", width=WIDTH - 4)
    return call("= diag_post_multiply", [f"z_{i}", *sd], ";", width=WIDTH - 4)


def spread_labels(design: Design) -> dict[str, str]:
    """Say what each standard deviation and correlation of penalised coefficients is."""
    labels = {
        smooth.spread[0]: f"standard deviation of s({smooth.expression})"
        for smooth in design.smooths
    }
    for group in design.groups:
        by = ":".join(group.by)
        for name, effect in zip(group.spread, group.labels, strict=True):
            labels[name] = f"standard deviation of {effect} by {by}"
        for name, (a, b) in zip(group.correlations, group.pairs, strict=True):
            labels[name] = f"correlation of {group.labels[b]} and {group.labels[a]} by {by}"
    return labels


def coefficient_labels(design: Design) -> dict[str, str]:
    """Map Stan's names of the groups' effects to brms's: ``r_g[a,Intercept]``."""
    labels: dict[str, str] = {}
    columns = coefficient_columns(design)[len(design.smooths) :]
    for group, names in zip(design.groups, columns, strict=True):
        texts = [f"r_{group.name}[{a},{b}]" for b in group.effects for a in group.levels]
        labels |= dict(zip(names, texts, strict=True))
    return labels
