"""What the ranks of ``farandole run`` do: the trials they are told, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from farandole.bench.calls import Trial
from farandole.bench.trial import run_trial
from farandole.export.json import read_schedule
from farandole.run.start import init


def run_trials(
    trials: Sequence[Mapping[str, Any]],
    schedules: Mapping[str, str],
    settings: Mapping[str, Any],
    progress: Callable[[Any], None],
) -> list[dict[str, Any]]:
    """Carry out ``trials`` (each the fields of a Trial) and return their outcomes.

    An algorithm that is a key of ``schedules`` is the schedule there, as JSON. ``settings`` go to ``init``.
    """
    read = {name: read_schedule(text.encode()) for name, text in schedules.items()}
    outcomes = []
    with init(**settings) as communicator:
        for fields in trials:
            trial = Trial(**fields)
            progress(f"{trial.algorithm} {trial.collective}")
            outcome = run_trial(communicator, trial, read.get(trial.algorithm, trial.algorithm))
            row = asdict(outcome)
            row["trial"] = dict(fields)
            outcomes.append({**row, "checked": outcome.checked, "algbw": outcome.algbw, "busbw": outcome.busbw})
    return outcomes
