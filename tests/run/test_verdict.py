"""Who waits for whom, in words."""

from __future__ import annotations

from typing import Any

from farandole.run.flight import CallRecord, Counters, Flight, RankFlight
from farandole.run.outside import Process
from farandole.run.rates import Rate, rates
from farandole.run.verdict import ranks_of, verdict

S = 10**9
NOW = 1000 * S


def _call(number: int, began_s: float, ended_s: float | None = None, **changes: Any) -> CallRecord:
    fields: dict[str, Any] = {
        "number": number, "kind": "foreground", "text": "barrier(dissemination)", "bytes": 0,
        "begin_ns": NOW - int(began_s * S), "end_ns": None if ended_s is None else NOW - int(ended_s * S),
        "outcome": "running" if ended_s is None else "none", "peer": None, "is_waited_for": True,
    }  # fmt: skip
    return CallRecord(**{**fields, **changes})


def _message(to: int | None, began_s: float) -> CallRecord:
    whom = "any rank" if to is None else f"rank {to}"
    return _call(1, began_s, kind="receive", text=f"receive from {whom}, tag 5", peer=to)


def _rank(
    rank: int, *calls: CallRecord, waits_for: int | None = None, waits_s: float = 0, **changes: Any
) -> RankFlight:
    fields: dict[str, Any] = {
        "rank": rank, "pid": 100 + rank, "started": 1, "left": "", "ending": "", "entered": len(calls),
        "waits_for": waits_for, "waits_since_ns": NOW - int(waits_s * S), "queued": 0,
        "counters": Counters(0, 0, 0, 0, 0, 0, 0), "calls": calls, "messages": (),
    }  # fmt: skip
    return RankFlight(**{**fields, **changes})


def _flight(*ranks: RankFlight, **changes: Any) -> Flight:
    fields: dict[str, Any] = {
        "size": len(ranks), "slot_bytes": 4096, "failure": "none", "first": None, "peer": None, "now_ns": NOW,
        "ranks": ranks,
    }  # fmt: skip
    return Flight(**{**fields, **changes})


def _say(flight: Flight, states: str) -> list[str]:
    processes = [Process(100 + rank, state.strip(), 1) for rank, state in enumerate(states)]
    return verdict(flight, ranks_of(flight, processes))


def test_a_rank_in_no_call_holds_up_all_that_wait_for_it_also_through_others() -> None:
    flight = _flight(
        _rank(0, _call(7, 12), waits_for=1, waits_s=12),
        _rank(1, _call(7, 12), waits_for=2, waits_s=11),
        _rank(2, _call(6, 13, 12.5)),
    )
    (sentence,) = _say(flight, "SST")
    assert sentence == (
        "ranks 0 and 1 wait for rank 2 (for 12.0 s), which is in no call since 12.5 s; it is stopped (T); "
        "its last call was #6 barrier(dissemination)"
    )


def test_a_dead_rank_is_said_to_be_dead_with_the_call_that_it_was_in() -> None:
    flight = _flight(_rank(0, _call(7, 2), waits_for=1, waits_s=2), _rank(1, _call(7, 2)))
    assert _say(flight, "S ") == [
        "rank 0 waits for rank 1 (for 2.00 s), which is dead (pid 101), last seen in call #7 barrier(dissemination)"
    ]
    assert _say(_flight(_rank(0), _rank(1)), "SZ") == ["rank 1 is dead (pid 101)"]


def test_a_rank_at_work_is_no_rank_that_waits() -> None:
    flight = _flight(_rank(0, _call(7, 0.3), waits_for=1, waits_s=0.2), _rank(1, _call(7, 0.3)))
    (sentence,) = _say(flight, "SR")
    assert "is at work in call #7 barrier(dissemination) since 300 ms; it is running (R)" in sentence


def test_messages_that_wait_for_each_other_are_a_circle() -> None:
    flight = _flight(
        _rank(0, messages=(_message(1, 9),)), _rank(1, messages=(_message(0, 8),)), _rank(2, messages=(_message(1, 7),))
    )
    (circle, *others) = _say(flight, "SSS")
    assert circle == (
        "ranks 0 and 1 wait for each other since 8.00 s, and none can go on: rank 0 in receive from rank 1, tag 5; "
        "rank 1 in receive from rank 0, tag 5"
    )
    assert others == []


def test_a_receive_from_any_rank_waits_for_all_others() -> None:
    flight = _flight(
        _rank(0, messages=(_message(None, 3),)), _rank(1, left="closed"), _rank(2, left="failed", ending="E")
    )
    assert _say(flight, "SSS") == [
        "rank 0 waits for rank 1 (for 3.00 s), which has closed the communicator",
        "rank 0 waits for rank 2 (for 3.00 s), which was ended by E",
    ]


def test_a_message_in_the_background_is_not_waited_for() -> None:
    message = _call(1, 5, kind="send", text="send to rank 1", peer=1, is_waited_for=False)
    flight = _flight(_rank(0, messages=(message,)), _rank(1))
    assert _say(flight, "SS") == ["nobody waits for anybody (ranks 0 and 1: idle)"]


def test_a_broken_communicator_says_who_noticed_first() -> None:
    flight = _flight(_rank(0), _rank(1), failure="late", first=0, peer=1)
    assert _say(flight, "SS") == ["the communicator is broken (late): rank 0 noticed it first, about rank 1"]


def test_rates_count_the_wait_that_goes_on() -> None:
    before = _flight(_rank(0, counters=Counters(5, 1, 0, 100, 50, 0, S // 4)), now_ns=NOW - 2 * S)
    now = _rank(0, counters=Counters(9, 3, 0, 2100, 1050, 0, S // 2), waits_for=1, waits_s=0.75)
    assert rates(before, _flight(now)) == [Rate(calls=3.0, sent=1000.0, received=500.0, waiting=0.5)]
    assert rates(_flight(now), _flight(now)) == [Rate(0.0, 0.0, 0.0, 0.0)]
