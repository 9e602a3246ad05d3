"""Manifests of runs that were never sampled."""

from typing import Any

from semistan.model.config import SampleConfig
from semistan.posterior.manifest import FORMAT_VERSION, Manifest

PLAN = {"chains": 1, "threads": 1, "grainsize": 1, "milliseconds": {}}


def manifest(sample: dict[str, Any] | None = None, **known: Any) -> Manifest:
    """Return a manifest with some options of sampling, and what else is known."""
    return Manifest(
        **{
            "format_version": FORMAT_VERSION,
            "semistan": "0.1.0",
            "formula": "y ~ nn(u)",
            "family": "gaussian",
            "cmdstan": "2.27.0",
            "compiler": "g++ 12.2.0",
            "prior_only": False,
            "bundle_sha256": "d" * 64,
            "sample": SampleConfig(**sample or {}),
            "plan": PLAN,
            "kernel": "stan",
            "keep_metric": True,
            "seconds": {"train": 1.234, "sample": 56.78},
        }
        | known
    )
