from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.units import (
    counted,
    format_bandwidth,
    format_size,
    format_time,
    parse_bandwidth,
    parse_size,
    parse_sizes,
    parse_time,
    parse_time_per_byte,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("8", 8),
        ("8B", 8),
        ("64KiB", 64 << 10),
        ("64kiB", 64 << 10),
        (" 1.5 MiB ", 3 << 19),
        ("1GB", 10**9),
        ("1kB", 1000),
        ("2e3", 2000),
        ("4PiB", 4 << 50),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "64 K", "64Q", "-8", "1,000", "0x10", "1e", "٣", "8 KiB 8"])
def test_what_is_no_size_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError, match="a size is written 8, 64KiB, 1MiB or 1GB, not") as info:
        parse_size(text)
    assert info.value.facts["got"] == text


@pytest.mark.parametrize("text", ["64Mb", "64mb", "8kib", "1Gib", "64b", "64Mbit", "64 Kibits"])
def test_bits_are_not_taken_for_bytes(text: str) -> None:
    with pytest.raises(UsageError, match=r"a small b may be a bit, and a size is in bytes: write [KMG]?i?B$") as info:
        parse_size(text)
    assert info.value.facts["got"] == text
    with pytest.raises(UsageError, match=r"a small b may be a bit"):
        parse_sizes(f"8:{text}")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50Gb/s", "GB/s for bytes, or Gbit/s"),
        ("50gb/s", "GB/s for bytes, or Gbit/s"),
        ("100Gbps", "GB/s for bytes, or Gbit/s"),
        ("50 gbit/s", "GB/s for bytes, or Gbit/s"),
        ("50GB", "GB/s for bytes, or Gbit/s"),
        ("1MiB", "MiB/s for bytes, or Mbit/s"),
        ("9b/s", "B/s for bytes, or bit/s"),
    ],
)
def test_a_bandwidth_that_may_be_in_bits_or_in_bytes_is_refused_with_both(text: str, written: str) -> None:
    for parse in (parse_bandwidth, parse_time_per_byte):
        with pytest.raises(UsageError, match=f"write {written} for bits$"):
            parse(text)


def test_a_size_is_a_whole_number_of_bytes_below_two_to_the_63() -> None:
    with pytest.raises(UsageError, match=r"whole number of bytes, which '0\.3KiB' is not"):
        parse_size("0.3KiB")
    with pytest.raises(UsageError, match="less than 2\\^63"):
        parse_size("9000PiB")
    with pytest.raises(UsageError, match="less than 2\\^63"):
        parse_size("1e99")


def test_ranges_are_powers_of_the_step_up_to_the_end() -> None:
    assert parse_sizes("8:128") == [8, 16, 32, 64, 128]
    assert parse_sizes("1KiB:1MiB*4") == [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20]
    assert parse_sizes("3:20") == [3, 6, 12]
    assert parse_sizes("8:8") == [8]
    assert parse_sizes("1MiB, 8:32, 16") == [8, 16, 32, 1 << 20]


@pytest.mark.parametrize("text", ["16:8", "0:8", "8:64*1", "8:64*", "8:64*x", "8:64*2.5"])
def test_what_is_no_range_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError, match="a range of sizes is written 8:128MiB, or 8:128MiB"):
        parse_sizes(text)


def test_bandwidths_are_bytes_per_second() -> None:
    assert parse_bandwidth("50GB/s") == 50e9
    assert parse_bandwidth("100Gbit/s") == 12.5e9
    assert parse_bandwidth("1GiB/s") == 2**30
    assert parse_bandwidth("8 bit/s") == 1
    assert parse_bandwidth("1kB/s") == parse_bandwidth("1KB/s") == 1000


@pytest.mark.parametrize("text", ["50GB", "50Gb/s", "50gb/s", "50 gbit/s", "0GB/s", "fast", "-1GB/s"])
def test_what_is_no_bandwidth_or_means_two_things_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a bandwidth is written 50GB/s or 100Gbit/s, not"):
        parse_bandwidth(text)


def test_times_are_seconds() -> None:
    assert [parse_time(text) for text in ("2us", "2 µs", "1.5ms", "3s", "700ps", "0", "0s", "4ns")] == [
        2e-6, 2e-6, 1.5e-3, 3.0, 7e-10, 0.0, 0.0, 4e-9,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["2", "2 min", "us", "-1us", ""])
def test_what_is_no_time_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError, match=r"a time is written 2us, 1\.5ms or 3s, not"):
        parse_time(text)


def test_a_time_per_byte_is_a_time_or_the_inverse_of_a_bandwidth() -> None:
    assert parse_time_per_byte("50GB/s") == parse_time_per_byte("20ps/B") == 2e-11
    assert parse_time_per_byte("0") == parse_time_per_byte("0s/B") == 0.0
    for text in ("2us", "0GB/s", "50GB", "", "2/B"):
        with pytest.raises(UsageError, match="a time per byte is written 20ps/B, or as the bandwidth 50GB/s, not"):
            parse_time_per_byte(text)


@given(st.integers(0, 2**63 - 1))
def test_a_size_that_is_formatted_reads_as_nearly_the_same(size: int) -> None:
    assert abs(parse_size_roughly(format_size(size)) - size) <= 0.005 * size


def parse_size_roughly(text: str) -> float:
    number = text.rstrip("BKMGTPi")
    return float(number) * (parse_size(f"1{text[len(number) :]}") if text != number else 1)


@given(st.integers(1, 999), st.integers(1, 5), st.sampled_from([1000, 1024]))
def test_a_round_size_is_formatted_exactly(count: int, power: int, base: int) -> None:
    size = count * base**power
    assert parse_size(format_size(size)) == size


@given(st.floats(1e-12, 1e5))
def test_a_time_is_formatted_to_three_digits(time_s: float) -> None:
    number, unit = format_time(time_s).split()
    assert float(number) * parse_time(f"1{unit}") == pytest.approx(time_s, rel=0.0051)
    assert len(number.replace(".", "").lstrip("0")) >= 3 or time_s < 1e-12


@given(st.floats(1, 1e17))
def test_a_bandwidth_is_formatted_to_three_digits(bandwidth: float) -> None:
    number, unit = format_bandwidth(bandwidth).split()
    assert float(number) * parse_bandwidth(f"1{unit}") == pytest.approx(bandwidth, rel=0.0051)


def test_one_thing_is_counted_in_words() -> None:
    assert (counted(0, "rank"), counted(1, "rank"), counted(2, "rank")) == ("0 ranks", "one rank", "2 ranks")
