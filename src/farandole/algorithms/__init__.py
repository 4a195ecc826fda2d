"""The algorithms, one idea a file. A new file in this folder is found by itself.

To add one, write ``my_idea.py`` here::

    @algorithm("my_idea", "all_reduce", rounds="1", bytes_per_rank="S(n-1)", paper="where it is from")
    def all_reduce(n: int) -> Iterator[Round]:
        '''One sentence that says how it works.'''
        ...
        yield Round(src=..., dst=..., chunk=..., reduce=True)

``farandole verify my_idea --ranks 8`` proves it, ``farandole show`` draws it, ``farandole run`` runs it.
"""

from __future__ import annotations

import importlib
import pkgutil

from farandole.algorithms.registry import REGISTRY, Algorithm, algorithm, build, find, parse, typed

__all__ = ["REGISTRY", "Algorithm", "algorithm", "build", "find", "parse", "typed"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
