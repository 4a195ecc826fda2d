"""What the ranks of the communicator's tests do, each in a process of its own."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farandole
from farandole.algorithms import REGISTRY, build
from farandole.errors import (
    ClosedError,
    CommunicationError,
    FarandoleError,
    LengthError,
    MismatchError,
    ScheduleError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
)
from farandole.layout import split
from farandole.run.shared import SHARED_FROM_BYTES
from farandole.schedule import Round, Schedule

TIMEOUT_S = 20.0
SHARED = Path("/dev/shm")  # noqa: S108 - to see that nothing is left there


def _init(**settings: Any) -> farandole.Communicator:
    return farandole.init(**{"timeout_s": TIMEOUT_S, **settings})


def _values(rank: int, *shape: int) -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) * 7 + rank * 1009) % 10007


def arrays_of_any_layout() -> None:
    """Views, transposed arrays, scalars and empty ones, in place and out of place; neighbours stay as they are."""
    with _init() as c:
        total = sum(_values(r, 6, 8) for r in range(c.size))
        views: list[Callable[[Any], Any]] = [
            lambda a: a, lambda a: a.T, lambda a: a[::2], lambda a: a[:, 1], lambda a: a[1:4, ::3], lambda a: a[::-1],
        ]  # fmt: skip
        for view in views:
            mine = _values(c.rank, 6, 8)
            before, touched = mine.copy(), np.zeros((6, 8), bool)
            view(touched)[...] = True
            assert c.all_reduce(view(mine)) is not None
            assert (view(mine) == view(total)).all()
            assert (mine[~touched] == before[~touched]).all()

            out = np.zeros((6, 8), before.dtype)
            c.all_reduce(view(before), out=view(out))
            assert (view(out) == view(total)).all()
            assert (out[~touched] == 0).all()
            assert (before == _values(c.rank, 6, 8)).all()

            gathered = c.all_gather(view(before))
            assert (gathered == np.concatenate([view(_values(r, 6, 8)) for r in range(c.size)])).all()
            c.broadcast(view(before), c.size - 1)
            assert (view(before) == view(_values(c.size - 1, 6, 8))).all()
            assert (before[~touched] == _values(c.rank, 6, 8)[~touched]).all()
        scalar = np.array(c.rank)
        assert c.all_reduce(scalar) == c.size * (c.size - 1) // 2
        assert c.all_gather(np.array(c.rank)).tolist() == list(range(c.size))
        assert c.all_reduce(np.empty((0, 3))).shape == (0, 3)
        assert c.all_to_all(np.empty(0)).shape == (0,)


def in_place_calls_with_overlapping_arrays() -> None:
    """The output may lie in the input where an in-place call has it, or anywhere else."""
    with _init() as c:
        n, r = c.size, c.rank
        total = sum(_values(k, 4 * n) for k in range(n))
        for algorithm in ("ring", "direct", "halving"):
            x = _values(r, 4 * n)
            c.reduce_scatter(x, out=x[4 * r : 4 * r + 4], algorithm=algorithm)
            assert (x[4 * r : 4 * r + 4] == total[4 * r : 4 * r + 4]).all()
            x = _values(r, 4 * n)
            c.reduce_scatter(x, out=x[:4], algorithm=algorithm)
            assert (x[:4] == total[4 * r : 4 * r + 4]).all()
        for algorithm in ("ring", "direct", "doubling", "bruck"):
            whole = np.concatenate([_values(k, 4) for k in range(n)])
            y = np.zeros(4 * n, whole.dtype)
            y[4 * r : 4 * r + 4] = _values(r, 4)
            assert (c.all_gather(y[4 * r : 4 * r + 4], out=y, algorithm=algorithm) == whole).all()
            z = np.zeros(4 * n + 1, whole.dtype)
            z[1:5] = _values(r, 4)
            assert (c.all_gather(z[1:5], out=z[: 4 * n], algorithm=algorithm) == whole).all()
        for algorithm in ("direct", "pairwise", "bruck"):
            x = _values(r, 4 * n)
            want = np.concatenate([_values(k, 4 * n)[4 * r : 4 * r + 4] for k in range(n)])
            assert (c.all_to_all(x, out=x, algorithm=algorithm) == want).all()


def uneven_parts() -> None:
    """Parts of different lengths, empty ones too."""
    with _init() as c:
        n, r = c.size, c.rank
        counts = [(3 * k) % 5 for k in range(n)]
        ends = np.cumsum(counts)
        total = sum(_values(k, int(ends[-1]), 3) for k in range(n))
        mine = slice(ends[r] - counts[r], ends[r])
        assert (c.reduce_scatter(_values(r, int(ends[-1]), 3), counts=counts) == total[mine]).all()
        whole = np.concatenate([_values(k, counts[k], 3) for k in range(n)])
        assert (c.all_gather(_values(r, counts[r], 3), counts=counts) == whole).all()
        gathered = c.gather(_values(r, counts[r], 3), n - 1, counts=counts)
        assert gathered is None if r != n - 1 else (gathered is not None and np.array_equal(gathered, whole))
        out = np.empty((counts[r], 3), whole.dtype)
        c.scatter(whole if r == 0 else None, 0, counts=counts, out=out)
        assert (out == whole[mine]).all()
        table = [[(s + 2 * d) % 4 for d in range(n)] for s in range(n)]
        given = [_values(s, sum(table[s])) for s in range(n)]
        parts = [np.split(given[s], np.cumsum(table[s])[:-1])[r] for s in range(n)]
        assert (c.all_to_all(given[r], send_counts=table[r]) == np.concatenate(parts)).all()


def background_calls_end_in_any_order_and_from_any_thread() -> None:
    """Several are in flight, mixed with calls in the foreground."""
    with _init() as c:
        n, r = c.size, c.rank
        works = [c.background.all_reduce(_values(r, 100 * k + 1)) for k in range(12)]
        assert c.all_reduce(np.array([r]))[0] == n * (n - 1) // 2
        strided = np.zeros((50, 2), np.int64)
        strided[:, 0] = r
        late = c.background.all_reduce(strided[:, 0])
        found: dict[int, Any] = {}
        threads = [threading.Thread(target=lambda k=k: found.update({k: works[k].wait()})) for k in range(11, -1, -1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for k in range(12):
            assert (found[k] == sum(_values(q, 100 * k + 1) for q in range(n))).all()
            assert works[k].done()
            assert works[k].wait(0) is found[k]
        assert late.wait() is not None
        assert (strided[:, 0] == n * (n - 1) // 2).all()
        assert (strided[:, 1] == 0).all()
        assert c.background.barrier().wait() is None


def a_forgotten_background_call_is_carried_out() -> None:
    """Its arrays live on although nobody holds them."""
    with _init() as c:
        for k in range(30):
            c.background.all_reduce(np.full(50_000 + k, float(c.rank)))
        assert c.all_reduce(np.ones(3)).tolist() == [c.size] * 3


def parts_of_the_ranks_are_communicators_of_their_own() -> None:
    """By color and key; parts of parts; calls in one do not disturb the other."""
    with _init() as c:
        part = c.split(c.rank % 2, key=-c.rank)
        assert part is not None
        members = sorted((r for r in range(c.size) if r % 2 == c.rank % 2), reverse=True)
        assert (part.size, part.rank) == (len(members), members.index(c.rank))
        assert part.all_gather(np.array([c.rank])).tolist() == members
        in_flight = part.background.all_reduce(np.array([1]))
        assert c.all_reduce(np.array([1])).tolist() == [c.size]
        assert in_flight.wait().tolist() == [len(members)]
        inner = part.split(None if part.rank else 0)
        assert (inner is None) == (part.rank != 0)
        part.close()


def many_communicators_leave_nothing_behind() -> None:
    """Descriptors, threads, and files in the usual places are as before."""

    def traces() -> tuple[int, int, list[Path]]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), sorted(SHARED.iterdir())

    with _init() as c:
        c.split(0).close()  # type: ignore[union-attr]
        before = traces()
        for _ in range(20):
            part = c.split(0)
            assert part is not None
            part.background.all_reduce(np.ones(10)).wait()
            part.close()
            part.close()
        assert traces() == before


def scaled_sums() -> None:
    """Each rank's own factor."""
    with _init() as c:
        got = c.all_reduce(np.full(5, 2.0, np.float32), scale=0.5 + c.rank)
        assert got.tolist() == [sum(2.0 * (0.5 + r) for r in range(c.size))] * 5


def a_schedule_of_ones_own() -> None:
    """It is proven, then run; a wrong one is refused before anything moves."""
    with _init() as c:
        schedule = build("all_reduce", "ring", c.size)
        assert c.all_reduce(np.array([c.rank]), algorithm=schedule).tolist() == [c.size * (c.size - 1) // 2]
        assert c.last_algorithm == "ring"
        if c.size > 1:
            with pytest.raises(ScheduleError, match="rejected"):
                c.all_reduce(np.array([1]), algorithm=Schedule("all_reduce", c.size, 1, (Round(0, 1),)))
            with pytest.raises(UsageError, match="cannot carry out broadcast"):
                c.broadcast(np.array([1]), algorithm=schedule)


def messages_with_tags_out_of_order() -> None:
    """A receive takes the first message that fits it; any sender will do if none is named."""
    with _init() as c:
        right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
        sends = [c.background.send(_values(c.rank, 10 * t + 1), right, tag=t) for t in range(5)]
        for tag in (3, 1, 4, 0, 2):
            room = np.empty(10 * tag + 1, np.int64)
            source = left if tag % 2 else None
            assert c.receive(room, source, tag) == left
            assert (room == _values(left, 10 * tag + 1)).all()
        for send in sends:
            send.wait()


def messages_larger_than_a_pipe() -> None:
    """Both ways at once, while a collective goes on."""
    with _init() as c:
        length = 200_000
        rooms = {peer: np.empty((length, 2), np.int64)[:, 0] for peer in range(c.size) if peer != c.rank}
        receives = [c.background.receive(room, peer) for peer, room in rooms.items()]
        sends = [c.background.send(_values(c.rank, length), peer) for peer in rooms]
        assert c.all_reduce(np.ones(1000)).tolist() == [c.size] * 1000
        assert [work.wait() for work in receives] == list(rooms)
        for work in sends:
            work.wait()
        assert all((room == _values(peer, length)).all() for peer, room in rooms.items())


def messages_that_do_not_fit() -> None:
    """The receiver is told, and the next message is not harmed."""
    with _init() as c:
        if c.rank == 0:
            for array in (np.ones(7), np.ones(5, np.float32), np.arange(5.0)):
                c.send(array, 1)
        elif c.rank == 1:
            with pytest.raises(LengthError, match="receives 40 bytes from rank 0, tag 0, which sent 56"):
                c.receive(np.empty(5), 0)
            with pytest.raises(UnsupportedError, match="receives float64 from rank 0, tag 0, which sent float32"):
                c.receive(np.empty(5), 0)
            room = np.empty(5)
            c.receive(room, 0)
            assert room.tolist() == [0, 1, 2, 3, 4]
            with pytest.raises(FarandoleError, match=r"rank 2 did not arrive within 0\.1 s"):
                c.receive(room, 2, timeout_s=0.1)
        c.barrier()


def _error(call: Callable[[], object]) -> tuple[str, str]:
    try:
        call()
    except FarandoleError as error:
        return type(error).__name__, str(error)
    return "", ""


def different_calls(how: str) -> tuple[str, str]:
    """The second call of rank 1 differs."""
    with _init() as c:
        c.all_reduce(np.ones(3))
        odd = c.rank == 1
        calls: dict[str, Callable[[], object]] = {
            "length": lambda: c.all_reduce(np.ones(9 if odd else 8, np.float32)),
            "dtype": lambda: c.all_reduce(np.ones(8, np.int64 if odd else np.float64)),
            "op": lambda: c.all_reduce(np.ones(8), "max" if odd else "sum", algorithm="naive"),
            "algorithm": lambda: c.all_reduce(np.ones(8), algorithm="tree" if odd else "ring"),
            "collective": lambda: c.all_gather(np.ones(8)) if odd else c.all_reduce(np.ones(8)),
            "root": lambda: c.reduce(np.ones(8), int(odd), algorithm="binomial"),
        }
        first = _error(calls[how])
        # A rank that needed nothing of the others learns of it in its next call.
        return first if first[0] else _error(c.barrier)


def one_is_late() -> tuple[str, str]:
    """Rank 2 comes after the others' deadline."""
    with _init() as c:
        c.barrier()
        while c.rank == 2 and c.engine is not None and c.engine.flight().failure == "none":
            time.sleep(0.001)
        return _error(lambda: c.all_reduce(np.ones(5), timeout_s=0.3))


def one_is_killed(when: str) -> tuple[str, str]:
    """Rank 1 is killed."""
    with _init() as c:
        if when != "before the first call":
            c.barrier()
        if c.rank == 1 and when == "in a large call":
            threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        elif c.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        large = np.ones(1 << 20)

        def call() -> None:
            while True:
                c.all_reduce(large, algorithm="ring")

        return _error(call)


def one_has_closed() -> tuple[str, str]:
    """Rank 0 closes; rank 1 goes on."""
    c = _init()
    c.barrier()
    if c.rank == 0:
        c.close()
    answer = _error(c.barrier)
    c.close()
    return answer


def forked() -> str:
    """A child uses what it has inherited."""
    with _init() as c:
        c.barrier()
        path = Path(f"/proc/{os.getpid()}")
        assert path.exists()
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, _error(c.barrier)[1].encode())
            os._exit(0)
        os.wait()
        os.close(writer)
        with os.fdopen(reader) as answer:
            text = answer.read()
        c.barrier()
        return text


def results_longer_than_the_caches() -> None:
    """They are written past the caches, wherever they begin."""
    with _init() as c:
        length = (6 << 20) // 4 + 3
        numbers = np.arange(length + 8, dtype=np.float32) % 1013
        for offset in (0, 1, 5):
            out = np.zeros(length + 8, np.float32)
            for algorithm in ("direct", "ring", "naive"):
                c.all_reduce(numbers[:length], out=out[offset : offset + length], algorithm=algorithm)
                assert (out[offset : offset + length] == numbers[:length] * c.size).all()
                assert (out[:offset] == 0).all()
                assert (out[offset + length :] == 0).all()


_SHARED = SHARED_FROM_BYTES // 8 + 8  # elements of 8 bytes: enough to be read in place, and divisible by 1, 2 and 3


def shared_arrays_are_read_where_they_are() -> None:
    """Every algorithm, in place and out of place, again and again, from the beginning and from within."""
    with _init() as c:
        n, r = c.size, c.rank
        memory = c.empty(_SHARED + 8, np.int64)
        for (collective, algorithm), start in itertools.product(sorted(REGISTRY), (0, 8)):
            x = memory[start : start + _SHARED]
            part = slice(r * _SHARED // n, (r + 1) * _SHARED // n)
            for turn in range(3):
                each = [_values(k + turn, _SHARED) for k in range(n)]
                x[:] = each[r]
                if collective == "all_reduce":
                    out = c.all_reduce(x, algorithm=algorithm, out=np.empty_like(x) if turn == 1 else None)
                    assert (out == sum(each)).all()
                elif collective == "reduce_scatter":
                    assert (c.reduce_scatter(x, algorithm=algorithm) == sum(each)[part]).all()
                elif collective == "all_gather":
                    assert (c.all_gather(x, algorithm=algorithm) == np.concatenate(each)).all()
                elif collective == "all_to_all":
                    assert (c.all_to_all(x, algorithm=algorithm) == np.concatenate([e[part] for e in each])).all()
                x[:] = -1  # nobody reads it any more
        if c.engine is not None:
            c.all_reduce(memory)
            assert "shared array 1 in place" in c.engine.states()[r][2]


def calls_with_and_without_shared_arrays_in_turn() -> None:
    """The same call, apart from where the data lies."""
    with _init() as c:
        total = sum(_values(k, _SHARED) for k in range(c.size))
        mine = _values(c.rank, _SHARED)
        arrays = [np.empty(_SHARED, mine.dtype), *(c.empty(_SHARED, mine.dtype) for _ in range(2))]
        for x in arrays * 4:
            x[:] = mine
            assert (c.all_reduce(x) == total).all()
        for x in arrays:
            x[:] = c.rank
        work = [c.background.all_reduce(x, out=np.empty_like(x)) for x in arrays]
        assert all((w.wait() == c.size * (c.size - 1) // 2).all() for w in work)


def shared_arrays_outlive_the_communicator() -> None:
    """And give their memory back when they are gone."""
    before = _mapped()
    with _init() as c:
        x = c.empty((512, 1024))
        view = x[5:]
        view[:] = c.rank
    rank, size = c.rank, c.size
    del x, c
    assert (view == rank).all()
    assert size == 1 or _mapped() > before
    del view
    assert _mapped() == before


def _mapped() -> int:
    """How many mappings of shared segments this process has."""
    return sum("memfd:" in line for line in Path("/proc/self/maps").read_text().splitlines())


def a_shared_array_on_some_ranks_only() -> str:
    """What the error says."""
    with _init() as c:
        shared = c.empty(_SHARED)
        shared[:] = 1
        try:
            c.all_reduce(np.ones(_SHARED) if c.rank == 1 else shared)
        except MismatchError as error:
            return str(error)
        return "no error"


def shared_arrays_of_different_sizes() -> str:
    """The name of the error."""
    with _init() as c:
        try:
            c.empty(100_000 * (1 + c.rank))
        except CommunicationError as error:
            return type(error).__name__
        return "no error"


def calls_that_are_repeated_with_every_argument() -> None:
    """The short way of a call that is made again takes the arguments of this time."""
    with _init() as c:
        n, r = c.size, c.rank
        counts = [(3 * k) % 5 for k in range(n)]
        for turn in range(3):
            x = _values(r + turn, 6)
            each = [_values(k + turn, 6) for k in range(n)]
            total = sum(each)
            assert (c.all_reduce(x.astype(np.float64), scale=0.5) == total / 2).all()
            assert (c.all_reduce(x.astype(np.float64), scale=0.0) == 0).all()
            for root in range(n):
                got = c.reduce(x.copy(), root)
                assert got is None if r != root else (got is not None and (got == total).all())
                assert (c.broadcast(x.copy(), root) == each[root]).all()
                whole = c.gather(x, root)
                assert whole is None if r != root else (whole is not None and (whole == np.concatenate(each)).all())
                part = c.scatter(np.concatenate(each) if r == root else None, root, out=np.empty_like(x))
                assert (part == each[r]).all()
            rows = [_values(k + turn, counts[k]) for k in range(n)]
            assert (c.all_gather(rows[r], counts=counts) == np.concatenate(rows)).all()
            assert (c.all_gather(x, timeout_s=20) == np.concatenate(each)).all()
            c.barrier()


def calls_that_look_like_one_before() -> None:
    """What has the same shape and dtype as arrays before, but lies elsewhere or otherwise, is treated as what it is."""
    with _init() as c:
        n = c.size
        whole = np.zeros((8, 6), np.float32)
        for turn in range(3):
            mine, want = _values(c.rank + turn, 8), sum(_values(k + turn, 8) for k in range(n))
            assert (c.all_reduce(mine.copy()) == want).all()
            assert (c.all_reduce(mine, out=np.empty_like(mine)) == want).all()
            whole[:, turn] = mine
            column = whole[:, turn]
            assert c.all_reduce(column) is column
            assert (whole[:, turn] == want).all()
            assert not whole[:, turn + 1].any()
            backwards = np.empty_like(mine)[::-1]
            assert (c.all_reduce(mine, out=backwards) == want).all()
            overlapping = np.empty(9, np.float32)
            overlapping[1:] = mine
            assert (c.all_reduce(overlapping[1:], out=overlapping[:8]) == want).all()
            with pytest.raises(UnsupportedError):
                c.all_reduce(mine.astype(">f4"))
            assert (c.all_reduce(mine.copy(), algorithm="rings"[:-1]) == want).all()
            assert c.last_algorithm == "ring"
            assert (c.all_reduce(mine.view(_Subclass).copy()) == want).all()
            assert (c.all_reduce(mine.copy(), timeout_s=20) == want).all()
            fixed = mine.copy()
            fixed.flags.writeable = False
            with pytest.raises(UsageError, match="read-only"):
                c.all_reduce(fixed)
            with pytest.raises(UnknownNameError):
                c.all_reduce(mine.copy(), ["sum"])  # type: ignore[arg-type]
            assert (fixed == mine).all()
    with pytest.raises(ClosedError):
        c.all_reduce(mine.copy())


class _Subclass(np.ndarray[tuple[int, ...], np.dtype[np.float32]]):
    """An array that NumPy knows by another name."""


def a_deterministic_communicator_adds_up_in_one_order() -> None:
    """The bits of an element depend neither on the length of the call nor on the collective."""
    values = [np.random.default_rng(rank).standard_normal(100_000).astype(np.float32) * 10.0**rank for rank in range(8)]
    with _init(deterministic=True) as c:
        mine = values[c.rank]
        want = values[0].copy()
        for other in values[1 : c.size]:
            want += other
        for length in (1, 7, 1000, 5000, 100_000):
            assert np.array_equal(c.all_reduce(mine[:length].copy()), want[:length])
            assert np.array_equal(
                c.all_gather(c.reduce_scatter(mine[:length]), counts=_counts(length, c)), want[:length]
            )
            whole = c.reduce(mine[:length].copy())
            assert whole is None or np.array_equal(whole, want[:length])
        if c.size > 2:
            with pytest.raises(UsageError, match="does not add up in the order of the ranks"):
                c.all_reduce(mine.copy(), algorithm="ring")
        c.all_gather(mine, algorithm="ring")  # adds up nothing
    with _init() as c:
        if c.size > 2:
            assert not np.array_equal(c.all_reduce(mine.copy(), algorithm="ring"), want)


def _counts(length: int, c: farandole.Communicator) -> list[int]:
    return [int(n) for n in np.diff(split(length, c.size))]


def determinism_that_ranks_do_not_agree_on() -> str:
    """The error of the rank that is not rank 0."""
    rank = int(os.environ["FARANDOLE_RANK"])
    try:
        with _init(deterministic=rank == 0) as c:
            return "rank 0" if c.rank == 0 else "no error"
    except UsageError as error:
        return str(error)
