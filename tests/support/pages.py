"""Reports made in memory, and a reader of HTML that knows no browser."""

from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import numpy as np

from semistan.model.trained import Source
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.summary import summarise
from semistan.show.report.results import Results
from support.drawn import random_draws
from support.manifests import manifest
from support.small import small_bundle

VOID = {"meta", "link", "img", "br", "hr", "input"}


def calm_sampler(chains, iterations, seed=0):
    """What NUTS reports of chains that have no trouble."""
    shape, generator = (chains, iterations), np.random.default_rng(seed)
    return {
        "lp": generator.normal(size=shape),
        "acceptance_rate": generator.uniform(0.7, 1, size=shape),
        "step_size": np.full(shape, 0.25),
        "tree_depth": np.full(shape, 3.0),
        "n_steps": np.full(shape, 7.0),
        "diverging": np.zeros(shape),
        "energy": generator.normal(size=shape),
    }


def small_results(
    formula="y ~ x + C(g) + nn(u, v)", *, prior_only=False, path=None, chains=4, iterations=300,
    frame=None, sampler=None, **settings,
):  # fmt: skip
    """Return a run that was never sampled; its draws are independent, so it has converged."""
    bundle, rows = small_bundle(formula, frame, **settings)
    bundle = replace(bundle, source=Source(path, len(rows), 0))
    drawn = random_draws(bundle, chains=chains, iterations=iterations)
    draws = replace(drawn, sampler={**calm_sampler(chains, iterations), **(sampler or {})})
    posterior = SubspacePosterior(bundle, draws)
    sample = {"chains": chains, "draws": iterations, "warmup": 300}
    return Results(
        posterior=posterior,
        summary=summarise(posterior, rows),
        rows=rows,
        table=rows.frame,
        program="// generated\ndata {\n  int<lower=1> N;  // rows\n}\n",
        manifest=manifest({"metric": "ggn"} | sample, prior_only=prior_only),
    )


@dataclass
class Node:
    """One element: its tag, its attributes, and the text inside it."""

    tag: str
    attributes: dict
    text: str = ""
    path: tuple = field(default=(), repr=False)


class Page(HTMLParser):
    """The elements of a page, in order; a tag that is not closed is an error."""

    def __init__(self, html):
        super().__init__()
        self.nodes, self.open = [], []
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {[node.tag for node in self.open]}"

    def handle_starttag(self, tag, attrs):
        node = Node(tag, dict(attrs), path=tuple(outer.tag for outer in self.open))
        self.nodes.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag):
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data):
        for node in self.open:
            node.text += data

    def all(self, tag):
        return [node for node in self.nodes if node.tag == tag]

    def texts(self, tag):
        return [node.text.strip() for node in self.all(tag)]
