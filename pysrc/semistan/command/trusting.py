"""``--trust-edited``, for every command that reads a run or a bundle."""

# Typer reads annotations at run time: no postponed evaluation here.
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from semistan.terminal import screen

OPTION = inspect.Parameter(
    "trust_edited",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option("--trust-edited", help="Go on with files that do not match their hashes."),
    ],
)


def trusting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option, and let it say which files it went on with."""

    @functools.wraps(command)
    def with_option(*, trust_edited: bool = False, **given: Any) -> None:
        if not trust_edited:
            command(**given)
            return
        from semistan.bundle.seal import trust_edited as trusted

        with trusted() as edited:
            try:
                command(**given)
            finally:
                for name in edited:
                    screen.say(f"'{name}' does not match its hash: taken as it is")

    signature = inspect.signature(command, eval_str=True)
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature.parameters.values()]
    parameters = [*own, OPTION]
    with_option.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_option.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_option
