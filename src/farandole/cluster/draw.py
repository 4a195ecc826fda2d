"""Pictures of clusters: a summary in text, and a drawing as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from farandole.cluster.model import Cluster
from farandole.errors import UsageError
from farandole.units import counted, format_bandwidth, format_time

DRAWN = 128  # nodes: more than that is a grey mass
_STYLE = (
    "text{font:12px sans-serif;fill:#1c2733}.node{fill:#fff;stroke:#33475b;stroke-width:1.5}"
    ".rank{fill:#dbe9f6}.link{stroke:#5b7083;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.node{fill:#1c2733;stroke:#9fb3c8}.rank{fill:#23415e}"
    ".link{stroke:#9fb3c8}}"
)


def kinds(cluster: Cluster) -> list[tuple[str, int, float, float]]:
    """The links that are the same, in one row: (an example, how many, bandwidth, latency in seconds)."""
    rows = np.stack([cluster.link_kind, cluster.bandwidth, cluster.latency_s], axis=1)
    _, first, count = np.unique(rows, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return [
        (cluster.link_name(int(i)), int(number), float(cluster.bandwidth[i]), float(cluster.latency_s[i]))
        for i, number in zip(first[order], count[order], strict=True)
    ]


def to_text(cluster: Cluster) -> str:
    """What there is, in a few lines."""
    counts = ((cluster.ranks, "rank"), (cluster.hosts, "host"), (cluster.link_count, "link"))
    ranks, hosts, links = (counted(number, what) for number, what in counts)
    lines = [f"{cluster.name}: {ranks} on {hosts}, {links}"]
    if cluster.summary:
        lines.append(cluster.summary)
    for example, number, bandwidth, latency in kinds(cluster):
        lines.append(
            f"  {number:>7,} x {format_bandwidth(bandwidth):>10}  {format_time(latency):>8}  such as {example}"
        )
    cost = format_time(cluster.startup_s)
    reduction = format_bandwidth(1 / cluster.reduce_s_per_byte) if cluster.reduce_s_per_byte else "for free"
    lines.append(f"a rank pays {cost} for each message, and reduces {reduction}")
    return "\n".join(lines)


def to_svg(cluster: Cluster) -> str:
    """A drawing: ranks on a circle by host, switches further in; a link's width shows its bandwidth.

    Raises UsageError for more nodes than can be told apart.
    """
    count = len(cluster.node_names)
    if count > DRAWN:
        raise UsageError(f"{cluster.name} has {count} nodes; up to {DRAWN} can be drawn", got=count)
    place = _places(cluster)
    fastest = float(cluster.bandwidth.max(initial=1.0))
    drawn: list[str] = []
    pairs: set[tuple[int, int]] = set()
    for link, (src, dst) in enumerate(zip(cluster.link_src.tolist(), cluster.link_dst.tolist(), strict=True)):
        if (dst, src) in pairs or (src, dst) in pairs:
            continue
        pairs.add((src, dst))
        width = 1 + 4 * math.sqrt(float(cluster.bandwidth[link]) / fastest)
        (x1, y1), (x2, y2) = place[src], place[dst]
        title = f"{cluster.link_name(link)}: {format_bandwidth(float(cluster.bandwidth[link]))}"
        drawn.append(
            f'<line class="link" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            f' stroke-width="{width:.2f}"><title>{escape(title)}</title></line>'
        )
    ranks = {int(node): rank for rank, node in enumerate(cluster.rank_node)}
    for node in range(count):
        x, y = place[node]
        name = escape(cluster.node_names[node])
        kind = "node rank" if node in ranks else "node"
        label = str(ranks[node]) if node in ranks else name
        drawn.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="14"><title>{name}</title></circle>')
        drawn.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{label}</text>')
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 820" role="img">'
        f"<title>{escape(cluster.name)}</title><style>{_STYLE}</style>"
        f'<text x="12" y="20">{escape(cluster.name)}: {escape(cluster.summary)}</text>'
    )
    return "\n".join([head, *drawn, "</svg>"]) + "\n"


def _places(cluster: Cluster) -> Sequence[tuple[float, float]]:
    """Where each node is drawn: ranks on the outer circle, what joins them in the middle of what it joins."""
    count = len(cluster.node_names)
    angle: dict[int, float] = {}
    for rank, node in enumerate(cluster.rank_node.tolist()):
        angle[node] = 2 * math.pi * rank / cluster.ranks - math.pi / 2
    depth = dict.fromkeys(angle, 0)
    ends = list(zip(cluster.link_src.tolist(), cluster.link_dst.tolist(), strict=True))
    level = 0
    while len(angle) < count:
        found: dict[int, list[float]] = {}
        for src, dst in ends:
            if src in angle and depth[src] == level and dst not in angle:
                found.setdefault(dst, []).append(angle[src])
        if not found:
            found = {node: [0.0] for node in range(count) if node not in angle}
        level += 1
        for node, around in found.items():
            x, y = sum(map(math.cos, around)), sum(map(math.sin, around))
            angle[node], depth[node] = math.atan2(y, x), level
    deepest = max(depth.values(), default=0)
    tops = [node for node, at in depth.items() if at == deepest]
    place = []
    for node in range(count):
        radius = 340 * (1 - depth[node] / (deepest + (len(tops) > 1) or 1))
        place.append((400 + radius * math.cos(angle[node]), 430 + radius * math.sin(angle[node])))
    return place
