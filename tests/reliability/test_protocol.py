"""The model that is explored in every interleaving does what the engine does: the same waits, in the same order."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.algorithms import REGISTRY
from farandole.run.call import compiled
from farandole.run.engine import BATCH_SLICES
from farandole.run.spawn import spawn
from farandole.verify.interleavings import Action, ModelCall, actions

RANKS_PY = str(Path(__file__).with_name("protocol_ranks.py"))


Event = tuple[str, int, int]


def _events(action: Action) -> list[Event]:
    told = [("announce", action.stage, action.slice)] if action.announces >= 0 else []
    return [
        *(("reuse", peer, action.slice) for peer, _ in action.reuse),
        *(("wait", peer, action.slice) for peer, _ in action.waits),
        *told,
    ]


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_engine_waits_and_announces_as_the_model_does(ranks: int) -> None:
    told = spawn(ranks, f"{RANKS_PY}:what_the_engine_did", timeout_s=50)
    assert max(slices for _, _, slices, _ in told[0]) > 2 * BATCH_SLICES
    model = [
        ModelCall(f"{collective} {name}", compiled(collective, name, ranks, 0)[1], slices)
        for collective, name, slices, _ in told[0]
    ]
    assert {call.name for call in model} == {f"{collective} {name}" for collective, name in REGISTRY}
    for rank in range(ranks):
        todo = actions(model, rank, BATCH_SLICES)
        for number, (*call, _, done) in enumerate(told[rank]):
            expected = [event for action in todo if action.call == number for event in _events(action)]
            assert [tuple(event) for event in done] == expected, (rank, call)
