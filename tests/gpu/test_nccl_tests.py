from __future__ import annotations

import pytest

from farandole.errors import FormatError
from farandole.gpu.nccl_tests import parse

HEAD = "# Collective test starting: {test}\n" + "".join(
    f"#  Rank  {rank} Group  0 Pid  {rank + 7} on host device  {rank} [0x0{rank}] NVIDIA A100\n" for rank in range(4)
)
COLUMNS = (
    "#     size    count    type  redop  root   time   algbw   busbw #wrong   time   algbw   busbw #wrong\n"
    "#      (B)    (elements)                     (us)  (GB/s)  (GB/s)          (us)  (GB/s)  (GB/s)\n"
)
ROW = " 1048576  262144  float  sum  -1  71.85  14.59  21.89  0  70.00  14.98  22.47  0\n"


def log(*rows: str, test: str = "all_reduce_perf", columns: str = COLUMNS) -> str:
    return HEAD.format(test=test) + columns + "".join(rows)


def test_a_log_gives_both_places_with_sizes_times_and_ranks() -> None:
    found = parse(log(ROW))
    assert [(p.series, p.collective, p.ranks, p.size_bytes) for p in found.points] == [
        ("out of place", "all_reduce", 4, 1048576),
        ("in place", "all_reduce", 4, 1048576),
    ]
    assert [p.time_s for p in found.points] == pytest.approx([71.85e-6, 70e-6])


@pytest.mark.parametrize(
    ("test", "collective"),
    [("all_gather_perf", "all_gather"), ("alltoall_perf_mpi", "all_to_all"), ("reduce_scatter_perf", "reduce_scatter"),
     ("reduce_perf", "reduce")],
)  # fmt: skip
def test_the_name_of_the_test_is_the_collective(test: str, collective: str) -> None:
    assert {point.collective for point in parse(log(ROW, test=test)).points} == {collective}


def test_old_logs_without_root_or_heading_are_read_when_told_the_rest() -> None:
    old = "  8192  2048  float  sum  22.50  0.36  0.64  2e-07  21.06  0.39  0.68  2e-07\n"
    found = parse(f"NCCL:\n{old}", "all_reduce", 8)
    assert [point.time_s for point in found.points] == pytest.approx([22.5e-6, 21.06e-6])
    with pytest.raises(FormatError, match="line 2: the log does not say which test it is; give --collective"):
        parse(f"NCCL:\n{old}", ranks=8)
    with pytest.raises(FormatError, match="line 2: the log has no lines"):
        parse(f"NCCL:\n{old}", "all_reduce")


def test_columns_that_options_add_are_found_by_their_heading() -> None:
    columns = "# size count type redop root time algbw busbw #wrong cputime time algbw busbw #wrong cputime\n"
    row = "1048576 262144 float sum -1 71.85 14.59 21.89 0 3.1 70.00 14.98 22.47 0 3.2\n"
    assert [point.time_s for point in parse(log(row, columns=columns)).points] == pytest.approx([71.85e-6, 70e-6])


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: "])
def test_prefixes_of_launchers_are_taken_off(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in log(ROW).splitlines())
    assert parse(text).points == parse(log(ROW)).points


def test_several_tests_in_one_log_are_kept_apart() -> None:
    found = parse(log(ROW) + log(ROW, test="all_gather_perf"))
    assert [key[1] for key in found.series()] == ["all_reduce", "all_reduce", "all_gather", "all_gather"]


def test_wrong_missing_and_empty_rows_are_left_out_and_said() -> None:
    rows = (
        " 0  0  float  sum  -1  14.2  0.00  0.00  0  14.3  0.00  0.00  0\n",
        " 1048576  262144  float  sum  -1  71.85  14.59  21.89  7  N/A  N/A  N/A  N/A\n",
    )
    found = parse(log(*rows))
    assert found.points == ()
    assert [note for note in found.notes if "7 wrong elements out of place" in note]
    assert [note for note in found.notes if "no bytes" in note]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (" 1048576  262144  float  sum  -1  71.85  14.59\n", "line 8 has 7 columns, and the heading names 13"),
        (
            " 1048576  262144  float  sum  -1  soon  14.59  21.89  0  70  14.98  22.47  0\n",
            "time is a number, not 'soon'",
        ),
        (ROW.replace("71.85", "718.5"), "is 1.46 GB/s, and the row says 14.59; it is garbled"),
    ],
)
def test_a_garbled_row_is_an_error_with_its_line(row: str, message: str) -> None:
    with pytest.raises(FormatError, match="line 8") as caught:
        parse(log(row))
    assert message in str(caught.value)
    assert caught.value.facts["line"] == 8


def test_point_to_point_is_refused() -> None:
    with pytest.raises(FormatError, match="sendrecv_perf is no collective"):
        parse("# Collective test starting: sendrecv_perf\n")
