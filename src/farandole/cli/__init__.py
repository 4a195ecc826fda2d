"""The command line. Every public module in this folder is one command, and is found by itself.

To add one, write ``name.py`` with a function ``name`` (or ``name_``, where Python needs the word itself) whose
parameters are declared as typer does. Its docstring is the help, ``EXAMPLES`` are shown below it, and
``SETTINGS``, if there are any, go to :meth:`typer.Typer.command`. Modules are loaded for every ``--help``, so
NumPy and what needs it are imported inside the function.

Exit status: 0 fine, 1 a check failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process; does not return."""
    from farandole.cli._app import application  # noqa: PLC0415 - typer is slow to load, and a library user needs none

    try:
        application()(prog_name="farandole")
    except KeyboardInterrupt:
        sys.exit(130)
