"""A section of ``model.toml``, whatever its keys are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A section: a value of another type than a key's is refused, not converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, content: Any) -> Any:
        """Turn lists into tuples, and what NumPy has into Python's own."""
        if not isinstance(content, Mapping):
            return content
        return {key: _python_value(value) for key, value in content.items()}


def _python_value(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return tuple(map(_python_value, value)) if isinstance(value, list | tuple) else value
