"""The application: collects the commands, and turns our exceptions into messages and exit statuses."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import farandole
from farandole import cli
from farandole.errors import FarandoleError, FormatError, UsageError

Command = Callable[..., None]

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


def application() -> typer.Typer:
    """The typer application with every command of this folder."""
    app = typer.Typer(
        help="Collective operations, written once as a schedule: proven, priced, simulated, shown and run.",
        epilog="farandole COMMAND --help shows the options of a command, with examples.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    for found in pkgutil.iter_modules(cli.__path__):
        if not found.name.startswith("_"):
            module = importlib.import_module(f"{cli.__name__}.{found.name}")
            command = getattr(module, found.name, None) or getattr(module, f"{found.name}_")
            settings = {"help": _help(command, module.EXAMPLES), **getattr(module, "SETTINGS", {})}
            app.command(found.name, **settings)(_guarded(found.name, command))
    return app


def _help(command: Command, examples: Sequence[str]) -> str:
    """The docstring and the examples; the control character keeps the lines of a paragraph as they are."""
    return "\n".join([inspect.getdoc(command) or "", "", "\b", "Examples:", *(f"  {line}" for line in examples)])


def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=lambda value: _version(asked=value), help="Print the version.")
    ] = False,
) -> None:
    pass


def _version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"farandole {farandole.__version__}")
        raise typer.Exit


def _guarded(name: str, command: Command) -> Command:
    """The command, with our errors as one message on stderr and the exit status that goes with them."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except FarandoleError as error:
            sys.stderr.write(f"farandole {name}: {error}\n")
            raise typer.Exit(MISUSED if isinstance(error, UsageError | FormatError) else FAILED) from None
        except OSError as error:
            if error.filename is None:
                raise
            sys.stderr.write(f"farandole {name}: {error.filename}: {error.strerror}\n")
            raise typer.Exit(MISUSED) from None

    return guarded
