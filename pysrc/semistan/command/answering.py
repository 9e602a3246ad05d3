"""``--json`` and ``--out``, for every command that prints tables."""

# Typer reads annotations at run time: no postponed evaluation here.
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistan.command.arguments import DIAGNOSTIC_FAILED, Json, Overwrite, wrote
from semistan.errors import InputError
from semistan.terminal import screen

if TYPE_CHECKING:
    import pandas as pd

    from semistan.workflow.sample import Fitted

AnswerOut = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="CSV, Parquet or JSON file to write, instead of printing."),
]


@dataclass(frozen=True, slots=True)
class Reply:
    """Where a command's answer goes: to the screen, as JSON to standard output, into a file."""

    as_json: bool
    out: Path | None = None

    def table(self, table: "pd.DataFrame", facts: Mapping[str, Any] | None = None) -> None:
        """Give one table."""
        self.tables({"": table}, facts)

    def tables(
        self,
        tables: "Mapping[str, pd.DataFrame]",
        facts: Mapping[str, Any] | None = None,
        show: Callable[[], None] | None = None,
    ) -> None:
        """Give tables by name, and facts beside them; ``show`` prints them in a way of its own."""
        from semistan.show.answers import Answer

        answer = Answer(tables, facts or {})
        if self.out is not None:
            answer.write(self.out)
            wrote(self.out)
        elif self.as_json:
            answer.print_json(sys.stdout)
        elif show is not None:
            show()
        else:
            screen.show_tables(tables)

    @property
    def on_screen(self) -> bool:
        """Whether the answer is for people."""
        return self.out is None and not self.as_json

    def fit(self, result: "Fitted") -> None:
        """Give a fit's coefficients and facts, and exit with 3 if a diagnostic failed."""
        table, facts = screen.summary_answer(result)
        self.tables({"": table}, facts, show=lambda: screen.show_fit(result))
        if result.summary.failed:
            raise typer.Exit(DIAGNOSTIC_FAILED)

    def pooled(self, results: "Sequence[Fitted]", interval: float = 0.95) -> None:
        """Give the coefficients over imputed tables, and exit with 3 if a diagnostic failed."""
        from semistan.posterior.pooled import pooled
        from semistan.workflow.pool import not_passed

        said = not_passed(results)
        table = pooled([result.posterior for result in results], interval)
        self.table(table, {"tables": len(results), "passed": not said})
        screen.say_all(said)
        screen.say_caveat(results[0].run)
        if any(result.summary.failed for result in results):
            raise typer.Exit(DIAGNOSTIC_FAILED)


def check_answer(as_json: bool, out: Path | None, overwrite: bool) -> None:
    """Refuse a file that cannot be written, and both kinds of output at once.

    Raises
    ------
    InputError
        Saying which.
    """
    from semistan.bundle.files import check_output_file
    from semistan.show.tables import check_table_path

    if out is None:
        return
    if as_json:
        raise InputError("--json prints, and --out FILE.json writes the same: give one of them")
    check_table_path(out)
    check_output_file(out, overwrite=overwrite)


def _parameter(name: str, annotation: Any, default: Any = False) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


OUT = _parameter("out", AnswerOut, None)
OVERWRITE = _parameter("overwrite", Overwrite)
JSON = _parameter("as_json", Json)


def answering(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options; it receives a ``Reply`` as ``reply``.

    A command whose ``--out`` is a folder of its own has ``--json`` alone. Whether the file can be
    written is known before the command begins.
    """
    signature = inspect.signature(command, eval_str=True)
    own = {name: p for name, p in signature.parameters.items() if name != "reply"}
    has_folder = "out" in own
    shared_overwrite = "overwrite" in own

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        as_json = given.pop(JSON.name, False)
        if has_folder:
            command(reply=Reply(as_json), **given)
            return
        out = given.pop(OUT.name, None)
        overwrite = given.get if shared_overwrite else given.pop
        replace = overwrite(OVERWRITE.name, False)
        check_answer(as_json, out, replace)
        command(reply=Reply(as_json, out), **given)

    added = [] if has_folder else [OUT] if shared_overwrite else [OUT, OVERWRITE]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.values()]
    parameters += [*added, JSON]
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options
