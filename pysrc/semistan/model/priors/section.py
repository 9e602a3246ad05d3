"""The section ``[priors]`` of ``model.toml``: the prior of each class of parameters, or of one."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from semistan.errors import InputError, did_you_mean
from semistan.model.families.families import dispersion_keys
from semistan.model.families.family import SIGMA
from semistan.model.names import stan_name
from semistan.model.priors.classes import CLASSES, class_of
from semistan.model.priors.densities import AUTO, parse_prior
from semistan.model.priors.weight_scales import AUTO_SCALE, NO_SCALES, SD_W
from semistan.model.section import Section


def class_keys() -> set[str]:
    """Return the keys of ``[priors]`` that are of classes of parameters."""
    return dispersion_keys() | set(CLASSES)


class PriorConfig(Section):
    """``[priors]``: the prior of each class of parameters, in Stan's words.

    ``model/priors/classes.py`` has the table of classes, and families other than gaussian bring
    those of their parameters; ``gap`` is of the distances between an ordinal family's thresholds. A
    key such as ``b_age`` or ``sd_g__Intercept`` gives one parameter a prior of its own, ``b_sigma``
    all coefficients in the predictor of sigma, ``sd_g`` and ``cor_g`` those of the group g.
    ``phi = "auto"`` takes the scales from what spans the subspace. Without ``phi``, its prior is
    that of the networks' weights, ``w``, carried into the subspace: normal around 0, over the
    square root of the inputs of each layer; ``Intercept`` is that of the output biases. The
    output weights of a network that multiplies z may have one of their own, ``w_z``. ``sd_w`` is
    the prior of factors of the weights' standard deviations, for each input and each layer, which
    are sampled where all weights are; with ``"auto"`` only the output weights of networks that
    multiply a column have one, where they are integrated out, and with ``"none"`` none have.
    ``R2D2()`` is one prior of the coefficients ``b`` and of ``sd``, ``sds``, ``sdgp`` and ``sd_w``,
    where it is given.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str] = Field(init=False)

    b: str = CLASSES["b"].default
    w: str = CLASSES["w"].default
    Intercept: str = CLASSES["Intercept"].default
    phi: str | None = None
    sd_w: str = AUTO
    sd: str = CLASSES["sd"].default
    cor: str = CLASSES["cor"].default
    sds: str = CLASSES["sds"].default
    sdgp: str = CLASSES["sdgp"].default
    lscale: str | None = None
    simo: str = CLASSES["simo"].default
    sigma: str = SIGMA.prior
    shape: str | None = None
    nu: str | None = None
    precision: str | None = None
    gap: str | None = None
    autoscale: bool = True

    @property
    def coefficients(self) -> dict[str, str]:
        """The priors of single coefficients and scalars, by their names."""
        known = class_keys()
        return {key: text for key, text in self.__pydantic_extra__.items() if key not in known}

    @property
    def classes(self) -> dict[str, str]:
        """The priors of classes that have no key of their own above."""
        known = class_keys()
        return {key: text for key, text in self.__pydantic_extra__.items() if key in known}

    @property
    def on_weights(self) -> bool:
        """Whether the prior of phi is that of the weights, and training has it too."""
        return self.phi is None

    @property
    def scales_all(self) -> bool:
        """Whether the weights of all inputs and layers have scales that are sampled."""
        return self.sd_w not in (NO_SCALES, AUTO)

    @property
    def scales_outputs(self) -> bool:
        """Whether those are scales of output layers alone, which share an R2D2 prior."""
        return self.scales_all and parse_prior(self.sd_w, SD_W).density.explains

    @property
    def prior_of_scales(self) -> str:
        """The prior of those scales of weights that are sampled."""
        return self.sd_w if self.scales_all else AUTO_SCALE

    def scale_of(self, key: str) -> float:
        """Return the scale of a prior that is normal around 0."""
        return parse_prior(getattr(self, key), key).argument("scale")

    def scale_of_slope(self, key: str) -> float:
        """Return the scale of the output weights of a network that multiplies a column.

        ``key`` is that of their own prior, ``w_z``; without one they have that of all weights.
        """
        text = self.coefficients.get(key)
        return parse_prior(text, key).argument("scale") if text else self.scale_of("w")

    def of_class(self, key: str) -> str | None:
        """Return the prior of a class of parameters, or None where it has its own default."""
        return getattr(self, key) if key in type(self).model_fields else self.classes.get(key)

    def chosen(self, own: str, *keys: str, default: str = "") -> tuple[str, str]:
        """Return a parameter's prior and its source: its own, or that of the first key with one.

        Parameters
        ----------
        own : str
            The parameter's own key.
        keys : str
            The keys of what it is one of, the narrowest first, its class last.
        default : str
            The prior where none of them has one.
        """
        if own in self.coefficients:
            return self.coefficients[own], "coefficient"
        for key in keys[:-1]:
            if key in self.coefficients:
                return self.coefficients[key], "class"
        return self.of_class(keys[-1]) or default, self.source(keys[-1])

    def source(self, key: str) -> str:
        """Say whether a class's prior is the ``default`` one, or one given for the ``class``."""
        return "default" if self.of_class(key) == self.default(key) else "class"

    @classmethod
    def default(cls, key: str) -> str | None:
        """Return a class's prior where the user gives none."""
        field = cls.model_fields.get(key)
        return None if field is None else field.default

    @field_validator("w", "Intercept")
    @classmethod
    def _of_weights(cls, text: str, info: Any) -> str:
        _check_normal_around_zero(text, info.field_name)
        return text

    @field_validator(
        "b", "phi", "sd", "cor", "sds", "sdgp", "lscale", "simo", "sigma", "shape", "nu",
        "precision", "gap",
    )  # fmt: skip
    @classmethod
    def _readable(cls, text: str | None, info: Any) -> str | None:
        if text is not None:
            parse_prior(text, info.field_name)
        return text

    @field_validator("sd_w", mode="before")
    @classmethod
    def _of_scales(cls, text: Any) -> Any:
        if not isinstance(text, str):
            return NO_SCALES if text is None else text  # bundles may have null
        if text.strip() not in (NO_SCALES, AUTO):
            parse_prior(text, SD_W)
        return text.strip()

    @model_validator(mode="after")
    def _beside_phi(self) -> PriorConfig:
        of_weights = [key for key in self.__pydantic_extra__ if class_of(key) is CLASSES["w"]]
        if self.scales_all:
            of_weights.append("sd_w")
        if of_weights and not self.on_weights:
            raise InputError(
                f"prior '{of_weights[0]}' is of weights, and prior 'phi' takes the place of the "
                "weights' prior; leave one of the two out"
            )
        return self

    @model_validator(mode="after")
    def _readable_keys(self) -> PriorConfig:
        for name, text in self.__pydantic_extra__.items():
            single = class_of(name) and re.fullmatch(r"\w+", name, re.ASCII)
            if not single and name not in class_keys():
                hint = did_you_mean(name, list(type(self).model_fields))
                if class_of(written := stan_name(name)):
                    hint = f" Names have '_' where brms has ':' or '.': write '{written}'."
                raise InputError(
                    f"unknown key '{name}'.{hint} The key of a coefficient is its name in the "
                    "table, as b_age."
                )
            parse_prior(text, name)
            if class_of(name) is CLASSES["w"]:
                _check_normal_around_zero(text, name)
        return self


def _check_normal_around_zero(text: str, key: str) -> None:
    prior = parse_prior(text, key)
    if prior.density.name != "normal" or prior.values[0] != 0:
        raise InputError(
            f"prior '{key}' must be normal around 0, as 'normal(0, 1)', got '{text}'; other priors "
            "are possible as prior 'phi'"
        )
