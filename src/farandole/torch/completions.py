"""Threads that wait for work in flight, in order to complete the futures of it.

What is chained to a future is the user's code, and may itself wait for another collective (some of PyTorch's own
communication hooks do). So it never runs on the thread that moves the data, and each of several futures in flight
has a thread of its own; threads are kept for the next ones.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class Threads:
    """As many threads as there are jobs at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._idle = 0

    def start(self, job: Job) -> None:
        """Run a job, at once. It must not raise."""
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._jobs.put(job)
                return
        # A thread at its end must not hold up the program's.
        threading.Thread(target=self._work, args=(job,), name="farandole-futures", daemon=True).start()

    def _work(self, job: Job) -> None:
        while True:
            job()
            del job  # it holds tensors
            with self._lock:
                self._idle += 1
            job = self._jobs.get()


THREADS = Threads()
os.register_at_fork(after_in_child=THREADS.__init__)  # type: ignore[misc]
