"""The steps of each rank, in the order in which it does them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.accesses import runs
from farandole.lower.fuse import Fusion
from farandole.lower.lanes import Lanes
from farandole.lower.messages import Fold, Messages
from farandole.program import Op
from farandole.schedule import Ints

Rows = dict[str, NDArray[Any]]

_FIRST_OF_ROUND = -1


def places(messages: Messages, receives_first: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """For each message, the place of its send and of its receive when each rank goes through its rounds.

    Places count over all ranks, rank by rank. Within a round what comes first is up to ``receives_first``
    (one entry per rank); then peers ascend, then chunks.
    """
    size = len(messages)
    rank, peer = (np.concatenate(pair) for pair in ((messages.src, messages.dst), (messages.dst, messages.src)))
    receives = np.arange(2 * size) >= size
    number = np.tile(np.arange(size), 2)
    late = receives != receives_first[rank]
    order = np.lexsort((number, np.tile(messages.chunk, 2), peer, late, np.tile(messages.round, 2), rank))
    place = np.empty(2 * size, np.int32)
    place[order] = np.arange(2 * size)
    return place[:size], place[size:]


def rows(
    messages: Messages,
    fused: Fusion,
    receives_first: NDArray[np.bool_],
    place: tuple[Ints, Ints],
    lane: tuple[Lanes, Lanes],
    chunks: int,
) -> Rows:
    """All steps as columns, ordered by rank and by time on each rank; ``lane`` tells lanes of a rank apart."""
    (sent_at, received_at), (sends_in, receives_in) = place, lane
    folded = np.flatnonzero(messages.fold != Fold.DIRECT)
    fold_cell = messages.chunk.astype(np.int64)
    fold_cell[folded], free = _scratch(messages, folded, messages.dst, chunks, chunks)
    own = np.flatnonzero(fused.comes_from < 0)
    saved = own[_is_received_into_first(messages, own, receives_first, chunks)]
    send_cell = messages.chunk.astype(np.int64)
    send_cell[saved], _ = _scratch(messages, saved, messages.src, chunks, free)
    last = np.flatnonzero(messages.fold == Fold.LAST)

    parts = [
        _part(messages, own, Op.SEND, messages.src, sends_in, sent_at, read=send_cell, send_to=messages.dst),
        _receives(messages, fused, fold_cell, received_at, receives_in),
        _part(
            messages, last, Op.REDUCE, messages.dst, receives_in, received_at,
            read=fold_cell, write=messages.chunk, sub=1,
        ),
        _part(
            messages, _once(messages, saved), Op.COPY, messages.src, sends_in, np.full(len(messages), _FIRST_OF_ROUND),
            read=messages.chunk, write=send_cell,
        ),
    ]  # fmt: skip
    table = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    order = np.lexsort((table["sub"], table["place"], table["round"], table["rank"]))
    return {key: column[order] for key, column in table.items()}


def _part(
    messages: Messages,
    which: NDArray[Any],
    op: Op,
    rank: Ints,
    lane: Lanes,
    place: NDArray[Any],
    *,
    sub: int = 0,
    **columns: NDArray[Any],
) -> Rows:
    """One step for each message of ``which``; columns that an op does not use are -1."""
    size = len(which)
    part: Rows = {key: np.full(size, -1, np.int32) for key in ("read", "write", "receive_from", "send_to")}
    part |= {"op": np.full(size, op, np.int32), "sub": np.full(size, sub, np.int32)}
    common: Rows = {"rank": rank, "lane": lane, "place": place, "round": messages.round, "count": messages.count}
    return part | {key: column[which] for key, column in (common | columns).items()}


def _receives(messages: Messages, fused: Fusion, cell: NDArray[Any], place: Ints, lane: Lanes) -> Rows:
    """The step that takes each message in, and sends on what it is fused with."""
    reduces = messages.reduce & (messages.fold != Fold.FIRST)
    onward = fused.onward >= 0
    everything = np.arange(len(messages))
    part = _part(
        messages, everything, Op.RECV, messages.dst, lane, place,
        read=np.where(reduces, cell, -1),
        write=np.where(fused.keeps, cell, -1),
        receive_from=messages.src,
        send_to=np.where(onward, messages.dst[fused.onward], -1) if len(messages) else messages.dst,
    )  # fmt: skip
    part["op"] = np.select(
        [onward & ~reduces, onward & ~fused.keeps, onward, reduces],
        [Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND, Op.RECV_REDUCE],
        Op.RECV,
    ).astype(np.int32)
    return part


def _is_received_into_first(
    messages: Messages, sent: NDArray[Any], receives_first: NDArray[np.bool_], chunks: int
) -> NDArray[np.bool_]:
    """Which of the messages ``sent`` carry a chunk that their sender has received into earlier in the round."""
    if not receives_first.any() or not len(sent):
        return np.zeros(len(sent), np.bool_)

    def keys(rank: Ints, of: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        row, chunk = runs(messages.chunk[of], messages.count[of])
        of = of[row]
        return row, (messages.round[of].astype(np.int64) * len(receives_first) + rank[of]) * chunks + chunk

    row, read = keys(messages.src, sent)
    _, written = keys(messages.dst, np.arange(len(messages)))
    touched = np.zeros(len(sent), np.bool_)
    touched[row[np.isin(read, written)]] = True
    return np.asarray(touched & receives_first[messages.src[sent]])


def _scratch(
    messages: Messages, which: NDArray[Any], rank: Ints, chunks: int, start: int
) -> tuple[NDArray[np.int64], int]:
    """The first scratch cell for each of the messages ``which``, and the next free one after all of them.

    Each chunk that they carry of a rank has a cell, from ``start`` on. Chunks keep their order, so that those of
    one message lie side by side.
    """
    row, chunk = runs(messages.chunk[which], messages.count[which])
    keys = np.unique(rank[which][row].astype(np.int64) * chunks + chunk)
    place = np.arange(len(keys)) - np.searchsorted(keys // chunks, keys // chunks)
    wanted = rank[which].astype(np.int64) * chunks + messages.chunk[which]
    return start + place[np.searchsorted(keys, wanted)], start + int(place.max(initial=-1)) + 1


def _once(messages: Messages, which: NDArray[Any]) -> NDArray[Any]:
    """Of messages that carry the same chunks of the same rank in the same round, the first."""
    columns = [column[which] for column in (messages.round, messages.src, messages.chunk, messages.count)]
    _, first = np.unique(np.stack(columns), axis=1, return_index=True)
    return which[np.sort(first)]
