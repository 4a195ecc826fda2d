from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.cluster import parse
from farandole.errors import UsageError
from farandole.lower import lower
from farandole.schedule import Round, Schedule
from farandole.show.payload import Run, run_payload
from farandole.simulate import Settings, simulate
from farandole.verify import states, verify_program
from golden import Golden
from pages import broken, every_algorithm


def _strange() -> Schedule:
    """Transfers outside the world, to oneself, of what is not held, and copies that meet reductions."""
    return Schedule(
        "all_reduce",
        3,
        3,
        (
            Round(
                src=[0, 1, 2, 5, 0], dst=[1, 1, 0, 1, 2], chunk=[0, 2, 1, 0, 2], reduce=[True, True, False, True, False]
            ),
            Round(src=[0, 2, 1], dst=[2, 2, 0], chunk=[1, 1, 0], count=[2, 1, 9], reduce=[True, True, False]),
            Round(src=[0, 1, 2], dst=[1, 2, 1], chunk=[0, 0, 0], count=[3, 2, 1], reduce=[False, True, True]),
        ),
        name="strange",
    )


def test_the_players_states_are_checked_against_these(golden: Golden) -> None:
    cases = [*every_algorithm(4), *every_algorithm(5), broken(), _strange()]
    lines = []
    for schedule in cases:
        held = [bits[:, :, 0].ravel().tolist() for bits in map(np.copy, states(schedule))]
        run = run_payload(Run(schedule))
        run["rounds"]["caption"] = [""] * len(schedule.rounds)
        run["problems"] = []
        lines.append(json.dumps({"run": run, "states": held}))
    golden("states.json", "[\n" + ",\n".join(lines) + "\n]\n")


def test_problems_say_where_they_are_and_leave_the_round_to_the_page() -> None:
    problems = run_payload(Run(broken()))["problems"]
    assert problems[0]["round"] == 1
    assert problems[0]["message"].startswith("in chunk 2 at rank 4")


def test_a_deadlock_says_who_waits_for_whom() -> None:
    schedule = build("all_reduce", "ring", 3)
    report = verify_program(lower(schedule, "send-first"), depth=0)
    assert run_payload(Run(schedule, report))["problems"][0]["waits"] == [[0, 1], [1, 2], [2, 0]]


@pytest.mark.parametrize(("ranks", "said"), [(64, ""), (65, "ranks 0 to 63 of 65 and chunks 0 to 63 of 65")])
def test_what_is_left_out_is_said_in_one_sentence(ranks: int, said: str) -> None:
    payload = run_payload(Run(build("all_gather", "ring", ranks)))
    assert said in payload["left_out"]
    assert bool(payload["left_out"]) == bool(said)
    assert payload["chunks"] == 64


def test_the_chunks_that_are_shown_keep_all_their_transfers() -> None:
    schedule = build("all_gather", "bruck", 70)
    table = schedule.columns()
    payload = run_payload(Run(schedule))
    transfers = payload["transfers"]
    shown = np.flatnonzero(table["chunk"] < 64)
    assert transfers["chunk"] == table["chunk"][shown].tolist()
    assert max(np.add(transfers["chunk"], transfers["count"])) == 64
    assert sum(payload["rounds"]["transfers"]) == len(shown)


def test_a_page_that_would_be_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="359,400 transfers of the 1 chunks") as error:
        run_payload(Run(build("all_reduce", "naive", 600)))
    assert error.value.facts["got"] == 359_400


def _events(part: dict[str, Any]) -> list[dict[str, int]]:
    columns = part["events"]
    length = max(len(values) for values in columns.values() if isinstance(values, list))
    return [
        {name: values if isinstance(values, int) else values[i] for name, values in columns.items()}
        for i in range(length)
    ]


@pytest.mark.parametrize("slices", [1, 3])
def test_every_event_of_a_trace_finds_its_transfer(slices: int) -> None:
    schedule = build("all_reduce", "hierarchical:levels=2x3", 6)
    result = simulate(schedule, parse("switch:6"), 60_000, settings=Settings(slices=slices), trace=True)
    part = run_payload(Run(schedule, trace=result))["trace"]
    sends = 0
    for event in _events(part):
        round_ = schedule.rounds[event["round"]]
        at = event["transfer"]
        kind = part["kinds"][event["kind"]]
        src, dst = (event["rank"], event["peer"]) if kind == "send" else (event["peer"], event["rank"])
        assert (round_.src[at], round_.dst[at], round_.chunk[at]) == (src, dst, event["chunk"])
        sends += kind == "send"
    assert sends == schedule.transfers * slices
    assert part["total_ns"] == max(event["end_ns"] for event in _events(part))


def test_the_critical_path_of_a_simulation_is_marked_without_gaps() -> None:
    schedule = build("all_reduce", "ring", 4)
    result = simulate(schedule, parse("switch:4@1GB/s,2us"), 4_000_000, trace=True)
    part = run_payload(Run(schedule, trace=result))["trace"]
    events = _events(part)
    path = [events[i] for i in part["critical"]]
    assert [event["round"] for event in path] == [0, 1, 2, 3, 4, 5]
    assert all(a["end_ns"] == b["start_ns"] for a, b in itertools.pairwise(path))
    assert path[-1]["end_ns"] == part["total_ns"]
    assert part["links"][0]["utilisation"] == pytest.approx(0.998, abs=0.001)


def test_a_trace_of_another_world_is_refused() -> None:
    result = simulate(build("all_reduce", "ring", 4), parse("switch:4"), 4096, trace=True)
    with pytest.raises(UsageError, match="all_reduce on 4 ranks, the schedule of all_reduce on 5 ranks"):
        run_payload(Run(build("all_reduce", "ring", 5), trace=result))


def test_a_simulation_without_its_trace_is_refused() -> None:
    schedule = build("all_reduce", "ring", 4)
    with pytest.raises(UsageError, match="trace=True"):
        run_payload(Run(schedule, trace=simulate(schedule, parse("switch:4"), 4096)))


def test_the_links_of_a_cluster_are_those_that_transfers_cross() -> None:
    schedule = build("all_reduce", "ring", 4)
    part = run_payload(Run(schedule, cluster=parse("hosts:2x4")))["cluster"]
    for src, dst, links in zip(*part["routes"].values(), strict=True):
        assert part["links"]["src"][links[0]] == part["rank_node"][src]
        assert part["links"]["dst"][links[-1]] == part["rank_node"][dst]
        inner = itertools.pairwise(links)
        assert all(part["links"]["dst"][a] == part["links"]["src"][b] for a, b in inner)
    assert sorted(zip(part["routes"]["src"], part["routes"]["dst"], strict=True)) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    used = {link for links in part["routes"]["links"] for link in links}
    assert used == set(range(len(part["links"]["src"])))
