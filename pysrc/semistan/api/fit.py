"""A fit and its verbs: what is typed in a notebook or script.

Every verb is a function of a run, which takes a fit, a run or the path of its folder; a ``Fit`` has
them as methods.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Unpack
from weakref import finalize

import numpy as np

from semistan.api.settings import Settings, dotted, with_settings
from semistan.bundle.files import atomic_folder, check_output_folder
from semistan.bundle.foreign import pack, unpack
from semistan.data.frames import Table
from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.modules import Given, codes
from semistan.model.table.rows import Rows
from semistan.posterior import predictive
from semistan.posterior.arviz import as_installed
from semistan.posterior.manifest import MARKER
from semistan.posterior.options import KNOWN
from semistan.posterior.posterior import Posterior
from semistan.posterior.run import Run
from semistan.posterior.summary import Summary
from semistan.program.program import bundle_program
from semistan.show.inference_data import inference_data
from semistan.terminal import bars
from semistan.workflow.baseline import baseline
from semistan.workflow.criticise import bayes_r2, comparisons, hypothesis, pp_check, sensitivity
from semistan.workflow.explain import decompose, effect, importance, slopes
from semistan.workflow.fit import fit_model
from semistan.workflow.kfold import kfold
from semistan.workflow.outputs import (
    draws,
    plot,
    plot_comparisons,
    plot_decomposition,
    plot_effect,
    report,
)
from semistan.workflow.pool import pool
from semistan.workflow.predict import predict
from semistan.workflow.prepare import configure, new_rows
from semistan.workflow.runs import RunLike, opened
from semistan.workflow.sample import Fitted, read_fitted, sample
from semistan.workflow.score import loo, score
from semistan.workflow.terms import terms
from semistan.workflow.train_subspaces import resume as train_what_lacks
from semistan.workflow.update import update as update_run
from semistan.workflow.watch import NOBODY, Watch


class _Temporary:
    """A folder that ends with the last fit in it."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="semistan-"))
        self.end = finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """A finished fit: what was learnt, and verbs that ask it.

    ``summary()`` has the table of coefficients and the diagnostics. The other verbs are the
    functions of their names, with the fit in place of the run: ``fit.predict(new)`` is
    ``semistan.predict(fit, new)``.

    Attributes
    ----------
    run : Run
        The run's folder and what is in it.
    posterior : Posterior
        The draws, with the networks.
    """

    run: Run
    posterior: Posterior
    _summary: Summary
    _folder: _Temporary | None = field(default=None)

    predict = predict
    score = score
    loo = loo
    kfold = kfold
    baseline = baseline
    effect = effect
    slopes = slopes
    marginal = slopes
    comparisons = comparisons
    importance = importance
    decompose = decompose
    hypothesis = hypothesis
    bayes_r2 = bayes_r2
    pp_check = pp_check
    sensitivity = sensitivity
    terms = terms
    pool = pool
    plot = plot
    plot_effect = plot_effect
    plot_comparisons = plot_comparisons
    plot_decomposition = plot_decomposition
    report = report
    draws = draws

    @property
    def path(self) -> Path:
        """The run's folder; without ``out`` a temporary one, which ends with the fit."""
        return self.run.path

    @property
    def formula(self) -> str:
        """The formula."""
        return self.run.config.formula

    @property
    def config(self) -> ModelConfig:
        """Every setting as it was used."""
        return self.run.config

    @property
    def stan_code(self) -> str:
        """The Stan program."""
        return bundle_program(self.run.bundle)

    @property
    def passed(self) -> bool:
        """Whether every diagnostic passed, and the chains agree."""
        return self._summary.passed

    def summary(self) -> Summary:
        """Return the table of coefficients and the diagnostics.

        Returns
        -------
        Summary
            ``table()`` is the table as a DataFrame, ``checks`` are the diagnostics.
        """
        return self._summary

    def epred(
        self, newdata: Table | None = None, *, dpar: str | None = None, groups: str = KNOWN
    ) -> Array:
        """Return draws of the mean, shape (S, N), or of K categories' probabilities, (S, N, K).

        Parameters
        ----------
        newdata : pandas.DataFrame or a table of another library, optional
            N rows; the training rows by default.
        dpar : str, optional
            A parameter of the response's distribution instead, as ``sigma``.
        groups : str
            What the effects of groups are: ``known``, those of the rows' levels; ``new``, of new
            levels; ``none``, left out; ``marginal``, integrated out of the mean.

        Raises
        ------
        InputError
            If the rows cannot be used, or the family has no such parameter.
        """
        posterior, rows = self.posterior.with_groups(groups), self._rows(newdata, groups=groups)
        return predictive.posterior_epred(posterior, rows, dpar=dpar)

    def linpred(
        self,
        newdata: Table | None = None,
        *,
        part: str = "all",
        dpar: str | None = None,
        groups: str = KNOWN,
    ) -> Array:
        """Return draws of the linear predictor, shape (S, N).

        Parameters
        ----------
        newdata : pandas.DataFrame or a table of another library, optional
            N rows; the training rows by default.
        part : str
            ``all``, ``structured``, ``nn`` (the network, centred over the training rows) or
            ``penalised`` (smooths and groups).
        dpar : str, optional
            The predictor of another parameter, as ``sigma``.
        groups : str
            What the effects of groups are, as of ``epred``.

        Raises
        ------
        InputError
            If the rows cannot be used, or there is no such part or parameter.
        """
        posterior, rows = self.posterior.with_groups(groups), self._rows(newdata, groups=groups)
        return predictive.posterior_linpred(posterior, rows, part=part, dpar=dpar)

    def replicate(self, newdata: Table | None = None, *, seed: int = 1) -> Array:
        """Return draws of new responses, shape (S, N).

        Parameters
        ----------
        newdata : pandas.DataFrame or a table of another library, optional
            N rows; the training rows by default.
        seed : int
            Of the responses.

        Raises
        ------
        InputError
            If the rows cannot be used.
        """
        generator = np.random.default_rng(seed)
        return predictive.posterior_predict(self.posterior, self._rows(newdata), generator)

    def log_lik(self, newdata: Table | None = None) -> Array:
        """Return each row's log-likelihood under each draw, shape (S, N).

        Parameters
        ----------
        newdata : pandas.DataFrame or a table of another library, optional
            N rows with their response; the training rows by default.

        Raises
        ------
        InputError
            If the rows cannot be used.
        """
        return predictive.log_lik(self.posterior, self._rows(newdata, response=True))

    def to_inference_data(self) -> Any:
        """Return the fit for ArviZ: posterior, sample_stats, log_likelihood and other groups.

        Returns
        -------
        xarray.DataTree or arviz.InferenceData
            What the installed ArviZ takes: the tree from its release 1 on.
        """
        return as_installed(inference_data(self.run, self.posterior, self.run.rows()))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Fit:
        """Copy the run's folder, and return the fit there.

        Parameters
        ----------
        path : path
            The new folder.
        overwrite : bool
            Whether an older run there may be replaced.

        Raises
        ------
        InputError
            If the folder exists.
        """
        target = Path(path)
        check_output_folder(target, MARKER, overwrite=overwrite)
        if target.resolve() == self.path.resolve():
            return self
        with atomic_folder(target) as folder:
            shutil.copytree(self.path, folder, dirs_exist_ok=True)
        return read_fit(target, networks=codes(self.run.bundle.modules) or None)

    @with_settings
    def update(
        self,
        formula: str | None = None,
        data: Table | str | Path | None = None,
        *,
        out: str | Path | None = None,
        overwrite: bool = False,
        progress: bool = True,
        **settings: Unpack[Settings],
    ) -> Fit:
        """Fit the model once more, as ``semistan.update``."""
        return update(
            self, formula, data, out=out, overwrite=overwrite, progress=progress, **settings
        )

    def resume(self, *, more: int, progress: bool = True) -> Fit:
        """Draw ``more`` times in each chain, going on from its last draw; as ``semistan.resume``.

        The fit itself stays as it is; what is returned has all draws.
        """
        return resume(self, more=more, progress=progress)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the run's folder, which is unpacked into a temporary one."""
        return _unpickled, (self.path.name, pack(self.path))

    def _rows(self, newdata: Table | None, *, response: bool = False, groups: str = KNOWN) -> Rows:
        if newdata is None:
            return self.run.rows()
        return new_rows(self.run.bundle, newdata, response=response, groups=groups)

    def __repr__(self) -> str:
        return f"{self.run!r}\n\n{self._summary!r}"

    def _repr_html_(self) -> str:
        place = f"<p><small>{escape(str(self.path))}</small></p>"
        return self.run._repr_html_() + self._summary._repr_html_() + place


@with_settings
def fit(
    model: str | Path | ModelConfig,
    data: Table | str | Path | None = None,
    *,
    out: str | Path | None = None,
    networks: Given | None = None,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Unpack[Settings],
) -> Fit:
    """Fit a model: everything from a formula and a table to a posterior.

    Parameters
    ----------
    model : str, Path or ModelConfig
        A formula, as ``"y ~ x + nn(u1, u2)"``, the path of a ``model.toml``, or a configuration.
    data : pandas.DataFrame, a table of another library, or path, optional
        The table; by default the one that ``model.toml`` names.
    out : path, optional
        The run's folder. By default it is temporary, and ends with the fit: ``Fit.save`` keeps it.
        What is interrupted can go on only from a folder of its own.
    networks : mapping, optional
        A ``torch.nn.Module`` for each name that the formula has as ``nn(..., module='f')``, as
        ``{"f": torch.nn.Sequential(...)}``. It gets the standardised inputs, (N, Q) or images
        (N, C, H, W), and returns (N,) or (N, 1) from a linear layer with a bias. Its parameters
        that require gradients are the weights, its other parameters and buffers are constants. It
        is copied, computes in double precision in the mode that it has, train or eval, and is
        trained from values drawn by ``reset_parameters`` of its layers. Only methods that PyTorch
        runs sample it, one chain after the other if its class is one of the running script's. The
        run's folder does not hold it: ``read_fit(out, networks)`` reads the fit again.
    overwrite : bool
        Whether an older run there may be replaced.
    progress : bool
        Whether standard error says what is going on and how far it is.
    family : str
        The response's distribution, as ``"poisson"``, or with a link, ``"bernoulli(probit)"``.
    priors : mapping
        Priors in Stan's words by class or parameter, as ``{"b": "normal(0, 1)", "sigma": ...}``;
        all others are the defaults.
    hidden : sequence of int
        Units of the hidden layers.
    k : int or "auto"
        Dimension of the subspace; all weights, if they are affordable, by default.
    method : str
        How the posterior is sampled or approximated: ``"nuts"`` by default.
    chains, warmup, draws : int
        Markov chains, and the iterations of each.
    seed : int
        Of training and sampling.
    **settings
        Every other key of ``model.toml`` by its last word; ``kernel_size`` is that of images.

    Returns
    -------
    Fit
        The posterior, with verbs that ask it.

    Raises
    ------
    InputError
        Before anything is trained or written, if the model, the data or a setting cannot be used
        or CmdStan is missing.
    SemistanError
        If training or sampling fails.
    """
    overrides, frame = dotted(settings), data
    if isinstance(data, str | Path):
        frame, overrides["data"] = None, str(data)
    config = configure(model, overrides)
    with _folder(out) as (temporary, folder), _watched(progress) as watch:
        fitted = fit_model(
            config, frame, out=folder, networks=networks, overwrite=overwrite, watch=watch
        )
        return _of(fitted, temporary)


@with_settings
def update(
    run: RunLike,
    formula: str | None = None,
    data: Table | str | Path | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Unpack[Settings],
) -> Fit:
    """Fit a run's model once more, with its settings and seeds.

    Training begins anew. Without any change, the new run has the draws of the old one, on the same
    machine with the same versions of the libraries.

    Parameters
    ----------
    run : Fit, Run or path
        The run whose settings are taken.
    formula : str, optional
        Another formula, for the same data, which are read again where they were if they are from a
        file. If the old fit sampled all weights, k is found anew.
    data : pandas.DataFrame, a table of another library, or path, optional
        Other data.
    out, overwrite, progress
        As of ``fit``, for the new run.
    **settings
        Settings that change, as of ``fit``.

    Returns
    -------
    Fit
        The new fit.

    Raises
    ------
    InputError
        If the model or the data cannot be used, or the new run would replace the old one.
    """
    run, overrides = opened(run), dotted(settings)
    with _folder(out) as (temporary, folder), _watched(progress) as watch:
        fitted = update_run(
            run, out=folder, formula=formula, data=data, overrides=overrides,
            overwrite=overwrite, watch=watch,
        )  # fmt: skip
        return _of(fitted, temporary)


def read_fit(run: RunLike, networks: Given | None = None) -> Fit:
    """Read a finished run.

    Parameters
    ----------
    run : Fit, Run or path
        The run.
    networks : mapping, optional
        The modules of its formula, as of ``fit``.

    Raises
    ------
    InputError
        If it is no run, or chains are missing, which ``resume`` draws.
    """
    return _of(read_fitted(run, networks))


def resume(
    run: RunLike,
    *,
    more: int | None = None,
    networks: Given | None = None,
    progress: bool = True,
) -> Fit:
    """Complete an interrupted run, or go on with a finished one.

    Parameters
    ----------
    run : Fit, Run or path
        The run.
    more : int, optional
        So many more draws for each chain of a finished run, which goes on from its last draw with
        its step size and metric.
    networks : mapping, optional
        The modules of its formula, as of ``fit``.
    progress : bool
        Whether standard error says what is going on and how far it is.

    Returns
    -------
    Fit
        The whole fit.

    Raises
    ------
    InputError
        If it is no run, or cannot go on.
    SemistanError
        If a chain fails, or another process is at work on this run.
    """
    path = Path(run) if isinstance(run, str | Path) else opened(run).path
    with _watched(progress) as watch:
        whole = train_what_lacks(path, networks=networks, watch=watch)
        fitted = sample(whole, more=more, watch=watch)
    return _of(fitted, run._folder if isinstance(run, Fit) else None)


def _of(fitted: Fitted, temporary: _Temporary | None = None) -> Fit:
    return Fit(fitted.run, fitted.posterior, fitted.summary, temporary)


def _unpickled(name: str, content: bytes) -> Fit:
    with _folder(None) as (temporary, folder):
        unpack(content, folder.parent)
        return _of(read_fitted(folder.parent / name), temporary)


@contextmanager
def _folder(out: str | Path | None) -> Iterator[tuple[_Temporary | None, Path]]:
    """Yield the run's folder, and the temporary one around it if the user names none."""
    if out is not None:
        yield None, Path(out)
        return
    temporary = _Temporary()
    try:
        yield temporary, temporary.path / "run"
    except BaseException:
        temporary.end()
        raise


def _watched(progress: bool) -> AbstractContextManager[Watch]:
    """Return who watches: nobody, or bars."""
    return bars.watching() if progress else nullcontext(NOBODY)
