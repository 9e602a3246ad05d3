"""Pretrained trunks: ``nn(image(path), trunk="resnet.onnx", output="embedding")``.

Somebody else's network, in ONNX, makes an embedding of each image; the Bayesian network of
``nn()`` takes the embedding's numbers. The trunk is run once, when the table is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semistan.model.formula.images import Image, image_of


@dataclass(frozen=True, slots=True)
class Trunk:
    """What a formula says of a trunk.

    Attributes
    ----------
    image : Image
        The images that it takes.
    file : str
        The ONNX file.
    output : str, optional
        The output that is the embedding; the only one without.
    """

    image: Image
    file: str
    output: str | None = None


def trunk_of(arguments: tuple[str, ...], options: Mapping[str, Any]) -> Trunk | None:
    """Return the trunk of an ``nn()``, whose options are checked already; None without."""
    if "trunk" not in options:
        return None
    image = image_of(arguments[0])
    assert image is not None
    return Trunk(image, options["trunk"], options.get("output"))
