"""The collectives of a process group, under the names by which torch.distributed calls them.

Each method checks its tensors, brings them into plain memory, and hands the call to the group's channel. Lists of
tensors are one piece of memory for the engine: they may have different lengths wherever all ranks know these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from farandole.errors import LengthError
from farandole.torch.arguments import one, reduction, root_of, scaled, timeout_of, waits
from farandole.torch.channel import Channel
from farandole.torch.profiling import Shown, shown
from farandole.torch.repeats import Repeats
from farandole.torch.sparse import all_reduce as all_reduce_sparse
from farandole.torch.tensors import Finish, check_length, gathered, is_plain, readable, room_for, same_dtype, writable
from farandole.torch.work import Work, together

Tensors = Sequence[Tensor]


class Collectives(Shown):
    """The part of the process group that makes collectives; ``_channel`` carries them out."""

    _channel: Channel
    _rank: int
    _size: int
    _begun: list[Work] | None
    _repeats: Repeats

    def _elsewhere(self, tensor: Tensor) -> Collectives:
        """The group for tensors of another device, which has the same methods."""
        raise NotImplementedError

    def _devices(self) -> set[str]:
        """The types of devices that the group has a backend for."""
        raise NotImplementedError

    def _done(self, work: Work) -> Work:
        if self._begun is not None:
            self._begun.append(work)
        return work

    def allreduce(self, tensors: Tensor | Tensors, opts: Any = None) -> Work:
        """Combine the tensors of all ranks, in place."""
        work = None if self._begun is not None else self._repeats.in_place("all_reduce", tensors, opts)
        return self._all_reduce(tensors, opts) if work is None else work

    @shown("all_reduce", 0)
    def _all_reduce(self, tensors: Tensor | Tensors, opts: Any = None) -> Work:
        tensor = one(tensors, "all_reduce", sparse=True)
        if not tensor.is_cpu:
            return self._elsewhere(tensor).allreduce([tensor], opts)
        if tensor.layout is torch.sparse_coo:
            return self._done(all_reduce_sparse(self._channel, tensor, opts))
        op, factor = reduction(opts, tensor.dtype)
        target, finish = writable(tensor)
        source = target if factor is None else scaled(tensor, factor)
        work = self._channel.run(
            "all_reduce", (target.numel(),), source, target, [tensor],
            op=op, in_place=0, timeout_s=timeout_of(opts), waits=waits(opts), finish=finish,
        )  # fmt: skip
        if source is target is tensor:
            self._repeats.learn("all_reduce", op, tensor, tensor, work)
        return self._done(work)

    @shown("all_reduce", 0)
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """As allreduce, for each of several tensors."""
        if not tensors[0].is_cpu:
            return self._elsewhere(tensors[0]).allreduce_coalesced(tensors, opts)
        return self._each([partial(self.allreduce, tensor, opts) for tensor in tensors], tensors)

    @shown("broadcast", 0)
    def broadcast(self, tensors: Tensor | Tensors, opts: Any = None) -> Work:
        """Copy the root's tensor into that of every other rank."""
        tensor = one(tensors, "broadcast")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).broadcast([tensor], opts)
        root = root_of(opts, self._size)
        is_root = root == self._rank
        target, finish = (readable(tensor), None) if is_root else writable(tensor)
        return self._done(
            self._channel.run(
                "broadcast", (target.numel(),), target if is_root else None, target, [tensor],
                root=root, in_place=0, timeout_s=timeout_of(opts), waits=waits(opts), finish=finish,
            )
        )  # fmt: skip

    @shown("reduce", 0)
    def reduce(self, tensors: Tensor | Tensors, opts: Any = None) -> Work:
        """Combine the tensors of all ranks, in place at the root; the others keep theirs."""
        tensor = one(tensors, "reduce")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).reduce([tensor], opts)
        root = root_of(opts, self._size)
        op, factor = reduction(opts, tensor.dtype)
        target, finish = writable(tensor) if root == self._rank else (None, None)
        source = scaled(tensor, factor) if target is None or factor is not None else target
        return self._done(
            self._channel.run(
                "reduce", (source.numel(),), source, target, [tensor],
                op=op, root=root, in_place=0, timeout_s=timeout_of(opts), waits=waits(opts), finish=finish,
            )
        )  # fmt: skip

    @shown("all_gather", 1)
    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Every rank gets the tensors of all; they may have different lengths."""
        tensor = one(inputs, "all_gather")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).allgather(outputs, [tensor], opts)
        pieces = self._pieces(outputs, tensor, "all_gather")
        check_length(tensor, pieces[self._rank].numel(), f"all_gather: the tensor of rank {self._rank}")
        target, finish = room_for(pieces)
        return self._gather("all_gather", readable(tensor), target, _counts(pieces), pieces, 0, opts, finish)

    def all_gather_single(self, output: Tensor, input_: Tensor, opts: Any = None) -> Work:
        """Every rank gets the tensors of all, one after another in one."""
        work = None if self._begun is not None else self._repeats.from_to("all_gather", input_, output, opts)
        return self._all_gather_single(output, input_, opts) if work is None else work

    @shown("all_gather", 1)
    def _all_gather_single(self, output: Tensor, input_: Tensor, opts: Any = None) -> Work:
        if not input_.is_cpu:
            return self._elsewhere(input_).all_gather_single(output, input_, opts)
        same_dtype([output, input_], "all_gather_into_tensor")
        count = input_.numel()
        check_length(output, count * self._size, f"all_gather_into_tensor: the output for {self._size} ranks")
        target, finish = writable(output)
        source = readable(input_)
        work = self._gather("all_gather", source, target, (count,) * self._size, [output], 0, opts, finish)
        if source is input_ and target is output:
            self._repeats.learn("all_gather", "", input_, output, work)
        return work

    @shown("all_gather", 1)
    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """As allgather, for each of several tensors; ``outputs`` is a list per rank."""
        if not inputs[0].is_cpu:
            return self._elsewhere(inputs[0]).allgather_coalesced(outputs, inputs, opts)
        calls = [
            partial(self.allgather, [[of_rank[index] for of_rank in outputs]], [tensor], opts)
            for index, tensor in enumerate(inputs)
        ]
        return self._each(calls, [tensor for of_rank in outputs for tensor in of_rank])

    @shown("all_gather", 1)
    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """As all_gather_single, for each of several tensors."""
        if not inputs[0].is_cpu:
            return self._elsewhere(inputs[0]).all_gather_single_coalesced(outputs, inputs, opts)
        pairs = zip(outputs, inputs, strict=True)
        return self._each([partial(self.all_gather_single, *pair, opts) for pair in pairs], outputs)

    @shown("gather", 1)
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """The root gets the tensors of all, which have one length."""
        tensor = one(inputs, "gather")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).gather(outputs, [tensor], opts)
        root = root_of(opts, self._size)
        counts = (tensor.numel(),) * self._size
        if root != self._rank:
            return self._gather("gather", readable(tensor), None, counts, [tensor], root, opts, None)
        pieces = self._pieces(outputs, tensor, "gather")
        for rank, piece in enumerate(pieces):
            check_length(piece, tensor.numel(), f"gather: the output for rank {rank}, as the input of rank {root},")
        target, finish = room_for(pieces)
        return self._gather("gather", readable(tensor), target, counts, pieces, root, opts, finish)

    @shown("scatter", 1)
    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Each rank gets one of the root's tensors, which have one length."""
        tensor = one(outputs, "scatter")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).scatter([tensor], inputs, opts)
        root = root_of(opts, self._size)
        target, finish = writable(tensor)
        source = None
        if root == self._rank:
            pieces = self._pieces(inputs, tensor, "scatter")
            for rank, piece in enumerate(pieces):
                check_length(
                    piece, tensor.numel(), f"scatter: the input for rank {rank}, as the output of rank {root},"
                )
            source = gathered(pieces)
        return self._done(
            self._channel.run(
                "scatter", (target.numel(),) * self._size, source, target, [tensor],
                root=root, in_place=self._before((target.numel(),) * self._size, target),
                timeout_s=timeout_of(opts), waits=waits(opts), finish=finish,
            )
        )  # fmt: skip

    @shown("reduce_scatter", 1)
    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Combine the lists of all ranks; rank r gets the r-th tensor. They may have different lengths."""
        tensor = one(outputs, "reduce_scatter")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).reduce_scatter([tensor], inputs, opts)
        pieces = self._pieces(inputs, tensor, "reduce_scatter")
        check_length(tensor, pieces[self._rank].numel(), f"reduce_scatter: the output of rank {self._rank}")
        return self._reduce_scatter(gathered(pieces), tensor, _counts(pieces), opts)

    def reduce_scatter_single(self, output: Tensor, input_: Tensor, opts: Any = None) -> Work:
        """Combine the tensors of all ranks; rank r gets the r-th part."""
        work = None
        if self._begun is None:
            work = self._repeats.from_to("reduce_scatter", input_, output, opts, reduces=True)
        return self._reduce_scatter_single(output, input_, opts) if work is None else work

    @shown("reduce_scatter", 1)
    def _reduce_scatter_single(self, output: Tensor, input_: Tensor, opts: Any = None) -> Work:
        if not input_.is_cpu:
            return self._elsewhere(input_).reduce_scatter_single(output, input_, opts)
        same_dtype([output, input_], "reduce_scatter_tensor")
        count = output.numel()
        check_length(input_, count * self._size, f"reduce_scatter_tensor: the input for {self._size} ranks")
        source = readable(input_)
        work = self._reduce_scatter(source, output, (count,) * self._size, opts)
        op, factor = reduction(opts, output.dtype)
        if source is input_ and is_plain(output) and factor is None:
            self._repeats.learn("reduce_scatter", op, input_, output, work)
        return work

    @shown("reduce_scatter", 1)
    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """As reduce_scatter_single, for each of several tensors."""
        if not inputs[0].is_cpu:
            return self._elsewhere(inputs[0]).reduce_scatter_single_coalesced(outputs, inputs, opts)
        pairs = zip(outputs, inputs, strict=True)
        return self._each([partial(self.reduce_scatter_single, *pair, opts) for pair in pairs], outputs)

    @shown("all_to_all", 1)
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Rank r's d-th tensor becomes rank d's r-th; they may have different lengths."""
        if not inputs[0].is_cpu:
            return self._elsewhere(inputs[0]).alltoall(outputs, inputs, opts)
        same_dtype([*outputs, *inputs], "all_to_all")
        if not len(outputs) == len(inputs) == self._size:
            raise LengthError(
                f"all_to_all takes {self._size} inputs and outputs, one per rank, not {len(inputs)} and {len(outputs)}",
                expected=self._size,
                got=(len(inputs), len(outputs)),
            )
        target, finish = room_for(outputs)
        table = self._table(_counts(inputs), _counts(outputs), opts)
        return self._all_to_all(gathered(inputs), target, table, outputs, opts, finish)

    def all_to_all_single(
        self,
        output: Tensor,
        input_: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Rank r's d-th part becomes rank d's r-th part; splits are rows per rank, or empty for equal parts."""
        work = None
        if self._begun is None and not (output_splits or input_splits) and self._share(input_, output):
            work = self._repeats.from_to("all_to_all", input_, output, opts)
        return self._all_to_all_single(output, input_, output_splits, input_splits, opts) if work is None else work

    @shown("all_to_all", 1)
    def _all_to_all_single(
        self,
        output: Tensor,
        input_: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any,
    ) -> Work:
        if not input_.is_cpu:
            return self._elsewhere(input_).all_to_all_single(output, input_, output_splits, input_splits, opts)
        same_dtype([output, input_], "all_to_all_single")
        sends = self._parts(input_, input_splits, "input")
        receives = self._parts(output, output_splits, "output")
        if output_splits or input_splits:
            table = self._table(sends, receives, opts)
        else:
            check_length(output, input_.numel(), "all_to_all_single without splits: the output")
            table = sends * self._size
        target, finish = writable(output)
        source = readable(input_)
        work = self._all_to_all(source, target, table, [output], opts, finish)
        if source is input_ and target is output and not (output_splits or input_splits):
            self._repeats.learn("all_to_all", "", input_, output, work)
        return work

    @shown("barrier", 1)
    def barrier(self, opts: Any = None) -> Work:
        """Done when every rank has come; on the device that the caller names, if the group has a backend for it."""
        device = getattr(opts, "device", None)
        if device is not None and device.type != "cpu" and device.type in self._devices():
            return self._elsewhere(torch.empty(0, device=device)).barrier(opts)
        return self._done(
            self._channel.run(
                "barrier", (0,) * self._size, None, None, [torch.empty(0)],
                timeout_s=timeout_of(opts), waits=waits(opts),
            )
        )  # fmt: skip

    # Versions before 2.13 have these names.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _start_coalescing(self, device: torch.device) -> None:
        if device.type != "cpu":
            self._elsewhere(torch.empty(0, device=device))._start_coalescing(device)  # noqa: SLF001
        else:
            self._begun = []

    def _end_coalescing(self, device: torch.device) -> Work:
        if device.type != "cpu":
            return self._elsewhere(torch.empty(0, device=device))._end_coalescing(device)  # noqa: SLF001
        begun, self._begun = self._begun or [], None
        return together(begun, [tensor for work in begun for tensor in work.tensors] or [torch.empty(0)])

    def _each(self, calls: Sequence[Callable[[], Work]], tensors: Tensors) -> Work:
        return together([call() for call in calls], tensors)

    def _gather(
        self,
        name: str,
        source: Tensor,
        target: Tensor | None,
        counts: tuple[int, ...],
        tensors: Tensors,
        root: int,
        opts: Any,
        finish: Finish | None,
    ) -> Work:
        before = -self._before(counts, source)
        return self._done(
            self._channel.run(
                name, counts, source, target, tensors,
                root=root, in_place=before, timeout_s=timeout_of(opts), waits=waits(opts), finish=finish,
            )
        )  # fmt: skip

    def _reduce_scatter(self, source: Tensor, output: Tensor, counts: tuple[int, ...], opts: Any) -> Work:
        op, factor = reduction(opts, output.dtype)
        target, finish = writable(output)
        before = self._before(counts, source)
        return self._done(
            self._channel.run(
                "reduce_scatter", counts, scaled(source, factor), target, [output],
                op=op, in_place=before, timeout_s=timeout_of(opts), waits=waits(opts), finish=finish,
            )
        )  # fmt: skip

    def _all_to_all(
        self,
        source: Tensor,
        target: Tensor,
        table: tuple[int, ...],
        tensors: Tensors,
        opts: Any,
        finish: Finish | None,
    ) -> Work:
        return self._done(
            self._channel.run(
                "all_to_all", table, source, target, tensors,
                timeout_s=timeout_of(opts), waits=waits(opts), finish=finish,
            )
        )  # fmt: skip

    def _before(self, counts: tuple[int, ...], tensor: Tensor) -> int:
        """How many bytes of a buffer of all ranks' parts come before this rank's."""
        return sum(counts[: self._rank]) * tensor.element_size()

    def _pieces(self, lists: Sequence[Tensors], tensor: Tensor, what: str) -> Tensors:
        """The one list of a call, with a tensor per rank."""
        pieces = lists[0] if len(lists) == 1 else ()
        if len(pieces) != self._size:
            raise LengthError(
                f"{what}: rank {self._rank} must give {self._size} tensors, one per rank, not {len(pieces)}",
                expected=self._size,
                got=len(pieces),
            )
        same_dtype([tensor, *pieces], what)
        return pieces

    def _parts(self, tensor: Tensor, splits: Sequence[int], what: str) -> tuple[int, ...]:
        """Elements per rank, of a tensor whose rows are split so."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise LengthError(
                    f"all_to_all_single: {rows} rows of the {what} cannot be shared out equally among {self._size}"
                    f" ranks; pass {what}_split_sizes",
                    got=rows,
                )
            return (tensor.numel() // self._size,) * self._size
        if len(splits) != self._size or min(splits) < 0 or sum(splits) != rows:
            raise LengthError(
                f"all_to_all_single: {what}_split_sizes must be {self._size} numbers that add up to the {what}'s {rows}"
                f" rows, not {list(splits)}",
                expected=rows,
                got=list(splits),
            )
        width = tensor.numel() // rows if rows else 0
        return tuple(split * width for split in splits)

    def _share(self, *tensors: Tensor) -> bool:
        """Whether the rows can be shared out equally."""
        return all(tensor.dim() > 0 and tensor.shape[0] % self._size == 0 for tensor in tensors)

    def _table(self, sends: tuple[int, ...], receives: tuple[int, ...], opts: Any) -> tuple[int, ...]:
        """What each rank sends to each, row by row: the ranks tell each other."""
        mine = torch.tensor([*sends, *receives], dtype=torch.int64)
        all_ = torch.empty(2 * self._size * self._size, dtype=torch.int64)
        counts = (2 * self._size,) * self._size
        self._channel.run("all_gather", counts, mine, all_, [all_], timeout_s=timeout_of(opts), waits=True)
        rows = all_.view(self._size, 2, self._size)
        sent, received = rows[:, 0], rows[:, 1].t()
        if not torch.equal(sent, received):
            source, target = (sent != received).nonzero()[0].tolist()
            raise LengthError(
                f"all_to_all: rank {source} sends {int(sent[source, target])} elements to rank {target}, which expects"
                f" {int(received[source, target])}; all ranks see this error",
                source=source,
                target=target,
                sent=int(sent[source, target]),
                expected=int(received[source, target]),
            )
        return tuple(sent.flatten().tolist())


def _counts(tensors: Tensors) -> tuple[int, ...]:
    return tuple(tensor.numel() for tensor in tensors)
