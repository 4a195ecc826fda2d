"""How our values show themselves in notebooks; what is shown lies further on in the flow, so it is found by its name.

``Schedule``, ``Report``, ``Trace`` and ``Simulation`` have ``_repr_html_`` from here. A notebook calls it; nothing else
does, and nothing is loaded before.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def shown_by(function: str) -> Callable[[Any], str]:
    """A ``_repr_html_`` that has ``function`` of :mod:`farandole.show.notebook` write the value as HTML."""

    def _repr_html_(self: Any) -> str:
        write: Callable[[Any], str] = getattr(import_module("farandole.show.notebook"), function)
        return write(self)

    return _repr_html_
