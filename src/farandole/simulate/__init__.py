"""Simulation: how long a schedule takes on a cluster, and why.

The rules of the model, all times in seconds:

- A rank begins a round when its own part in the earlier rounds is done; there is no barrier. A rank that is late
  begins its first round late.
- It posts the messages of a round one after another, each for ``startup_s``: first to the peer next above it, and
  so on around. A message is all that it sends to one peer in the round.
- From then on the message is a flow over its route. All flows that share a link at one moment get max-min fair
  parts of its bandwidth. When the last byte has left, the sender is done with it; when it has also crossed the
  route's latency, it has arrived. Messages from one rank to another go one after another.
- With ``rendezvous``, a message also waits until its receiver has begun the round.
- The receiver takes a message up when it has arrived and the receiver's own round has begun. What is reduced
  takes ``reduce_s_per_byte``, one message after another in the order in which they are taken up.
- With slices, each slice goes through the whole schedule on its own; at a rank, the slices under way share the
  processor that posts and the one that reduces, each in order.

Where no two messages share a link, this is the alpha-beta-gamma model of ``farandole.cost``, with
alpha = startup + latency.
"""

from farandole.simulate.compare import Comparison, compare
from farandole.simulate.result import LinkLoad, Simulation
from farandole.simulate.rounds import Overlap
from farandole.simulate.settings import Settings
from farandole.simulate.single import simulate
from farandole.simulate.worlds import predict

__all__ = ["Comparison", "LinkLoad", "Overlap", "Settings", "Simulation", "compare", "predict", "simulate"]
