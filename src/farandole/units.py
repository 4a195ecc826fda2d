"""Sizes, bandwidths, times and counts: text to numbers and back.

Inside farandole there are bytes, bytes per second and seconds only; text is for people. The rules:

- a size is ``8``, ``64KiB``, ``1.5MiB``, ``1GB``: bytes, powers of 1,024 with an ``i``, of 1,000 without; the case of
  the prefix does not matter, but a byte is a ``B``: ``64Mb`` may mean bits, and is refused;
- a range of sizes is ``8:128MiB``: powers of two times the first, up to the last; ``8:128MiB*4`` steps by 4;
- a bandwidth is ``50GB/s`` or ``100Gbit/s``; upper and lower case are kept apart, since ``Gb`` means either;
- a time is ``2us``, ``1.5ms``, ``3s``;
- a time per byte is ``20ps/B``, or the bandwidth that it is the inverse of.

What is not of the form is a UsageError that says the form.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from farandole.errors import UsageError

_PREFIXES = ("", "K", "M", "G", "T", "P")
_SIZES = {f"{p}B": Fraction(1000**i) for i, p in enumerate(_PREFIXES)} | {
    f"{p}iB": Fraction(1024**i) for i, p in enumerate(_PREFIXES) if p
}
_BANDWIDTHS = (
    {f"{unit}/s": size for unit, size in _SIZES.items()}
    | {f"{p}bit/s": Fraction(1000**i, 8) for i, p in enumerate(_PREFIXES)}
    | {"kB/s": Fraction(1000), "kbit/s": Fraction(125)}
)
_TIMES = {unit: Fraction(1, 1000**i) for i, unit in enumerate(("s", "ms", "us", "ns", "ps"))}
_SIZES_ANY_PREFIX = {unit[:-1].lower() + "B": size for unit, size in _SIZES.items()}
_BITS = re.compile(r"([kmgtp]?i?)(?:b|bits?)(?:ps|/s)?", re.IGNORECASE)
_NUMBER = re.compile(r"\s*([0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?)\s*(.*?)\s*", re.ASCII | re.DOTALL)
_LARGEST_SIZE = 2**63 - 1

SIZE_FORM = "a size is written 8, 64KiB, 1MiB or 1GB"
RANGE_FORM = "a range of sizes is written 8:128MiB, or 8:128MiB*4 to step by 4"
BANDWIDTH_FORM = "a bandwidth is written 50GB/s or 100Gbit/s"
TIME_FORM = "a time is written 2us, 1.5ms or 3s"
TIME_PER_BYTE_FORM = "a time per byte is written 20ps/B, or as the bandwidth 50GB/s"


def _split(text: str, form: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{form}, not {text!r}", got=text)
    return Fraction(match[1]), match[2]


def parse_size(text: str) -> int:
    """A size in bytes.

    >>> parse_size("64KiB"), parse_size("1.5 kB"), parse_size("8")
    (65536, 1500, 8)
    """
    number, unit = _split(text, SIZE_FORM)
    scale = _SIZES_ANY_PREFIX.get(unit[:-1].lower() + unit[-1:]) if unit else Fraction(1)
    if scale is None:
        bits = _BITS.fullmatch(unit)
        why = (
            f"a small b may be a bit, and a size is in bytes: write {_prefix(bits[1])}B"
            if bits
            else f"the units are {', '.join(_SIZES)}"
        )
        raise UsageError(f"{SIZE_FORM}, not {text!r}: {why}", got=text)
    size = number * scale
    if size.denominator != 1:
        raise UsageError(f"a size is a whole number of bytes, which {text!r} is not", got=text)
    if size > _LARGEST_SIZE:
        raise UsageError(f"a size is less than 2^63 bytes, which {text!r} is not", got=text)
    return int(size)


def _prefix(text: str) -> str:
    """A prefix as it is written: ``mi`` is ``Mi``."""
    return text[:1].upper() + text[1:].lower()


def parse_sizes(text: str) -> list[int]:
    """Sizes in bytes, ascending: one size, several with commas, or a range.

    >>> parse_sizes("8:64"), parse_sizes("1KiB:20KiB*4"), parse_sizes("8,1KiB")
    ([8, 16, 32, 64], [1024, 4096, 16384], [8, 1024])
    """
    sizes: set[int] = set()
    for part in text.split(","):
        first, colon, rest = part.partition(":")
        if colon:
            sizes.update(_range(first, rest, text))
        else:
            sizes.add(parse_size(part))
    return sorted(sizes)


def _range(first: str, rest: str, text: str) -> list[int]:
    last, star, step_text = rest.partition("*")
    step = int(step_text) if step_text.strip().isdecimal() and len(step_text) < 20 else 0 if star else 2
    start, end = parse_size(first), parse_size(last)
    if step < 2 or start < 1 or start > end:
        raise UsageError(
            f"{RANGE_FORM}: from at least 1 byte upwards, by a factor of at least 2; not {text!r}", got=text
        )
    sizes = [start]
    while sizes[-1] * step <= end:
        sizes.append(sizes[-1] * step)
    return sizes


def parse_bandwidth(text: str) -> float:
    """A bandwidth in bytes per second, greater than 0.

    >>> parse_bandwidth("50GB/s"), parse_bandwidth("100Gbit/s")
    (50000000000.0, 12500000000.0)
    """
    number, unit = _split(text, BANDWIDTH_FORM)
    scale = _BANDWIDTHS.get(unit)
    if scale is None or not number:
        raise UsageError(f"{BANDWIDTH_FORM}, not {text!r}{_either(unit)}", got=text)
    return float(number * scale)


def _either(unit: str) -> str:
    """What to write where a unit may mean bits or bytes, or says no time; nothing for units that are none."""
    meant = _BITS.fullmatch(unit)
    if meant is None or unit in _BANDWIDTHS:
        return ""
    prefix = _prefix(meant[1])
    return f": write {prefix}B/s for bytes, or {prefix.removesuffix('i')}bit/s for bits"


def parse_time(text: str) -> float:
    """A time in seconds, at least 0.

    >>> parse_time("2us"), parse_time("0s")
    (2e-06, 0.0)
    """
    return _time(text, TIME_FORM)


def _time(text: str, form: str) -> float:
    number, unit = _split(text, form)
    scale = _TIMES.get(unit.replace("µ", "u") if unit or number else "s")
    if scale is None:
        raise UsageError(f"{form}, not {text!r}", got=text)
    return float(number * scale)


def parse_time_per_byte(text: str) -> float:
    """Seconds per byte, at least 0.

    >>> parse_time_per_byte("50GB/s"), parse_time_per_byte("20ps/B"), parse_time_per_byte("0")
    (2e-11, 2e-11, 0.0)
    """
    if text.strip().endswith("/B") or text.strip() == "0":
        return _time(text.strip().removesuffix("/B"), TIME_PER_BYTE_FORM)
    number, unit = _split(text, TIME_PER_BYTE_FORM)
    scale = _BANDWIDTHS.get(unit)
    if scale is None or not number:
        raise UsageError(f"{TIME_PER_BYTE_FORM}, not {text!r}{_either(unit)}", got=text)
    return float(1 / (number * scale))


def format_size(size_bytes: int) -> str:
    """A size as ``parse_size`` reads it: exact if it is small or a round one, else to three digits.

    >>> format_size(65536), format_size(10_000_000), format_size(1000), format_size(123_456_789)
    ('64KiB', '10MB', '1000', '118MiB')
    """
    units = [(unit, int(scale)) for unit, scale in _SIZES.items() if 1 < scale <= size_bytes]
    is_small = size_bytes < 100_000
    exact = [(size_bytes // scale, unit) for unit, scale in units if size_bytes % scale == 0]
    exact = [(count, unit) for count, unit in exact if "i" in unit or not is_small]
    if exact:
        return "{}{}".format(*min(exact))
    if is_small:
        return str(size_bytes)
    unit, scale = max((u for u in units if "i" in u[0]), key=lambda u: u[1])
    return f"{_three_digits(size_bytes / scale)}{unit}"


def format_time(time_s: float) -> str:
    """A time to three digits.

    >>> format_time(2e-6), format_time(0.0123), format_time(0.0)
    ('2.00 us', '12.3 ms', '0 s')
    """
    rounded = _rounded(time_s)
    if rounded == 0:
        return "0 s"
    unit = next((u for u, scale in _TIMES.items() if abs(rounded) >= float(scale)), "ps")
    return f"{_three_digits(rounded / float(_TIMES[unit]))} {unit}"


def format_bandwidth(bandwidth: float) -> str:
    """A bandwidth to three digits, in powers of 1,000.

    >>> format_bandwidth(1.3e9), format_bandwidth(0)
    ('1.30 GB/s', '0 B/s')
    """
    rounded = _rounded(bandwidth)
    power = max((i for i in range(len(_PREFIXES)) if abs(rounded) >= 1000**i), default=0)
    return f"{_three_digits(rounded / 1000**power)} {_PREFIXES[power]}B/s" if rounded else "0 B/s"


def counted(count: int, noun: str) -> str:
    """A number of things, in words.

    >>> counted(1, "rank"), counted(8, "rank")
    ('one rank', '8 ranks')
    """
    return f"one {noun}" if count == 1 else f"{count} {noun}s"


def _rounded(value: float) -> float:
    return float(f"{value:.2e}")


def _three_digits(value: float) -> str:
    """To three digits, without an exponent: 1.30, 13.0, 130, 1300."""
    rounded = _rounded(value)
    return f"{rounded:.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"
