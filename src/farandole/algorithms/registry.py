"""The table of algorithms: one entry per (collective, name), filled by the ``@algorithm`` decorator.

An algorithm is a pure function ``f(n, ...)`` that yields the rounds for ``n`` ranks. Its further
parameters are its options, with a default each; one named ``root`` receives the collective's root.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from farandole.collectives import Blocks, collective
from farandole.errors import OptionError, UnknownNameError, UsageError, WorldSizeError
from farandole.schedule import Round, Schedule

Ranks = tuple[int, ...]
Rounds = Iterable[Round]
Function = TypeVar("Function", bound=Callable[..., Rounds])
Option = int | str | Ranks
ChunkRule = Callable[..., int]

REGISTRY: dict[tuple[str, str], Algorithm] = {}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to carry out one collective.

    ``rounds`` and ``bytes_per_rank`` are the closed forms as text: n ranks, S bytes (the whole buffer),
    log is the binary logarithm. ``paper`` is where it was first described, ``summary`` one sentence.
    """

    name: str
    collective: str
    rounds: str
    bytes_per_rank: str
    paper: str
    summary: str
    function: Callable[..., Rounds] = field(repr=False)
    chunk_rule: ChunkRule = field(repr=False)

    @property
    def options(self) -> dict[str, Option]:
        """The options and their defaults."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {p.name: p.default for p in parameters if p.name != "root"}

    def build(self, ranks: int, root: int = 0, options: Mapping[str, Option] | None = None) -> Schedule:
        """The schedule for ``ranks`` ranks.

        Raises OptionError for an option it does not have, WorldSizeError for a world size that does not fit.
        """
        if ranks < 1:
            raise WorldSizeError(f"a world has at least 1 rank, not {ranks}", got=ranks)
        if not 0 <= root < ranks:
            raise UsageError(f"the root must be one of the ranks 0 to {ranks - 1}, not {root}", got=root)
        given = dict(options or {})
        for name in given:
            if name not in self.options:
                raise OptionError(str(UnknownNameError(f"option of {self.name}", name, self.options)), option=name)
        arguments = {**given, "root": root} if "root" in inspect.signature(self.function).parameters else given
        return Schedule(
            collective=self.collective,
            ranks=ranks,
            chunks=self.chunk_rule(ranks, **given),
            rounds=tuple(r for r in self.function(ranks, **arguments) if len(r)),
            root=root,
            name=self._spelled(given),
        )

    def _spelled(self, options: Mapping[str, Option]) -> str:
        def text(value: Option) -> str:
            return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

        listed = ",".join(f"{name}={text(value)}" for name, value in options.items())
        return f"{self.name}:{listed}" if listed else self.name


def algorithm(
    name: str,
    collective_name: str,
    *,
    rounds: str,
    bytes_per_rank: str,
    paper: str,
    chunks: int | ChunkRule | None = None,
) -> Callable[[Function], Function]:
    """Enter a function in the table.

    ``chunks`` is the number of chunks the schedule cuts the buffer into: a number, or a function of
    (n, options); by default one per block of the collective.
    """
    what = collective(collective_name)
    if chunks is None:
        chunks = 1 if what.blocks is Blocks.WHOLE else lambda n, **_: what.block_count(n)
    rule: ChunkRule = (lambda n, fixed=chunks, **_: fixed) if isinstance(chunks, int) else chunks

    def enter(function: Function) -> Function:
        summary = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
        entry = Algorithm(name, collective_name, rounds, bytes_per_rank, paper, summary, function, rule)
        REGISTRY[collective_name, name] = entry
        return function

    return enter


def find(collective_name: str, name: str) -> Algorithm:
    """The algorithm of that name for that collective; UnknownNameError says which ones there are."""
    collective(collective_name)
    try:
        return REGISTRY[collective_name, name]
    except KeyError:
        known = [n for c, n in REGISTRY if c == collective_name]
        raise UnknownNameError(f"algorithm for {collective_name}", name, known) from None


def parse(text: str) -> tuple[str, dict[str, str]]:
    """Split ``name:option=value,...`` into the name and its options, as text.

    >>> parse("ring:order=0,2,1,3")
    ('ring', {'order': '0,2,1,3'})
    """
    name, _, rest = text.partition(":")
    options: dict[str, str] = {}
    last = ""
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if equals:
            last = key.strip()
            options[last] = value.strip()
        elif last:
            options[last] += f",{part.strip()}"
        else:
            raise OptionError(f"options are written {name}:option=value,..., not {text!r}", got=text)
    return name.strip(), options


def typed(entry: Algorithm, options: Mapping[str, str]) -> dict[str, Option]:
    """Read the options' values as the types of their defaults; OptionError says the form."""
    defaults = entry.options
    values: dict[str, Option] = {}
    for name, text in options.items():
        default = defaults.get(name, text)
        try:
            if isinstance(default, tuple):
                values[name] = tuple(int(part) for part in text.replace("x", ",").split(","))
            else:
                values[name] = type(default)(text)
        except ValueError:
            form = "whole numbers, such as 4,2 or 4x2" if isinstance(default, tuple) else "a whole number"
            raise OptionError(f"{entry.name}: {name} is {form}, not {text!r}", option=name, got=text) from None
    return values


def build(collective_name: str, text: str, ranks: int, root: int = 0) -> Schedule:
    """The schedule of ``name:option=value,...`` for that collective and world size.

    >>> build("all_reduce", "ring", 4)
    Schedule(collective='all_reduce', ranks=4, chunks=4, root=0, name='ring')
    """
    name, options = parse(text)
    entry = find(collective_name, name)
    return entry.build(ranks, root, typed(entry, options))


def check_order(n: int, order: Ranks) -> Iterator[int]:
    """The ranks in the given order, or 0 to n-1; OptionError unless it names every rank once."""
    if order and sorted(order) != list(range(n)):
        raise OptionError(
            f"order must name each of the ranks 0 to {n - 1} once, not {','.join(map(str, order))}",
            expected=n,
            got=order,
        )
    return iter(order or range(n))


def check_shape(n: int, shape: Ranks, option: str, example: Callable[[int], Ranks]) -> Ranks:
    """``shape`` if its product is ``n``, ``example(n)`` if it is empty; WorldSizeError says which sizes fit."""
    if not shape:
        return example(n)
    written, product = "x".join(map(str, shape)), math.prod(shape)
    if min(shape) < 1:
        raise OptionError(f"{option}={written}: every side must be at least 1", got=shape)
    if product != n:
        fits = "x".join(map(str, example(n)))
        raise WorldSizeError(
            f"{option}={written} is a shape for {product} ranks, not {n}; {n} ranks fit {option}={fits}, say",
            expected=product,
            got=n,
        )
    return shape


def near_square(n: int) -> Ranks:
    """Two factors of ``n``, as near to each other as they can be, the larger first."""
    side = next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
    return (n // side, side)
