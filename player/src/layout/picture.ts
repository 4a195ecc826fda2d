/**
 * Where the ranks stand in the picture. Three arrangements, chosen from the data alone:
 *
 * - *tree*, where the transfers of the whole schedule form a tree: the busiest rank on top;
 * - *levels*, where a cluster has several nodes besides the ranks (switches, NICs): ranks below, the others above;
 * - *ring* otherwise: a circle, or one circle per group of ranks that talk among themselves first, or per host;
 *   a cluster's single switch stands in the middle.
 */
import type { ClusterData } from '../model/payload';
import type { Schedule } from '../model/schedule';

export interface Point {
  x: number;
  y: number;
}

export interface Places {
  kind: 'ring' | 'tree' | 'levels';
  /** One per rank, then one per further node of the cluster; in a square from -1 to 1, y downwards. */
  points: Point[];
  /** The same index as in `points`, for the cluster's nodes; empty without one. */
  ofNode: number[];
  /** The radius of a rank in the same units. */
  radius: number;
  /** Ranks that stand together, where there is more than one such group. */
  groups: number[][];
  /** The circles that hold the groups, in a ring of rings; empty elsewhere. */
  hulls: (Point & { radius: number })[];
}

/** The places for a picture whose height is `aspect` times its width. */
export function placesOf(schedule: Schedule, cluster: ClusterData | null, aspect = 1): Places {
  if (!cluster) {
    const parents = treeParents(schedule);
    return parents ? tree(schedule.ranks, parents) : ring(firstGroups(schedule), aspect);
  }
  const hubs = cluster.nodes.length - new Set(cluster.rank_node).size;
  if (hubs > 1) return levels(schedule, cluster);
  const places = ring(byKey(cluster.rank_host), aspect);
  const ofNode = nodesOfRanks(cluster);
  if (hubs === 1) {
    ofNode[ofNode.indexOf(-1)] = places.points.length;
    places.points.push({ x: 0, y: 0 });
  }
  return { ...places, ofNode };
}

function nodesOfRanks(cluster: ClusterData): number[] {
  const ofNode = new Array<number>(cluster.nodes.length).fill(-1);
  cluster.rank_node.forEach((node, rank) => (ofNode[node] = rank));
  return ofNode;
}

function byKey(keys: number[]): number[][] {
  const groups = new Map<number, number[]>();
  keys.forEach((key, rank) => groups.set(key, [...(groups.get(key) ?? []), rank]));
  return [...groups.values()];
}

/** The pairs of ranks that exchange anything, each once; null where there are so many that lines say nothing. */
export function skeleton(schedule: Schedule): [number, number][] | null {
  const pairs = new Map<number, [number, number]>();
  for (let t = 0; t < schedule.src.length; t++) {
    const [a, b] = [Math.min(schedule.src[t], schedule.dst[t]), Math.max(schedule.src[t], schedule.dst[t])];
    if (!schedule.valid[t] || a === b) continue;
    pairs.set(a * schedule.ranks + b, [a, b]);
    if (pairs.size > 3 * schedule.ranks) return null;
  }
  return [...pairs.values()];
}

/** The connected parts of the first phase, where each has at least two ranks; otherwise all ranks together. */
export function firstGroups(schedule: Schedule): number[][] {
  const all = [Array.from({ length: schedule.ranks }, (_, rank) => rank)];
  const phase = schedule.phases[0];
  if (!phase) return all;
  const leader = all[0].slice();
  const find = (rank: number): number => {
    while (leader[rank] !== rank) rank = leader[rank] = leader[leader[rank]];
    return rank;
  };
  for (let t = schedule.first[phase.first]; t < schedule.first[phase.end]; t++) {
    if (!schedule.valid[t]) continue;
    const [a, b] = [find(schedule.src[t]), find(schedule.dst[t])];
    leader[Math.max(a, b)] = Math.min(a, b);
  }
  const groups = byKey(all[0].map(find));
  return groups.every((group) => group.length > 1) ? groups : all;
}

const EDGE = 0.94;

function ring(groups: number[][], aspect: number): Places {
  const large = groups.filter((group) => group.length > 1);
  if (groups.length > 1 && large.length > 0) return ringOfRings(groups, aspect);
  const ranks = groups.flat();
  const radius = Math.min(0.22, EDGE * share(ranks.length));
  const points = circle({ x: 0, y: 0 }, EDGE - radius, ranks);
  return { kind: 'ring', points, ofNode: [], radius, groups: [], hulls: [] };
}

/** The radius of a rank, on a circle that n ranks stand on with their outer sides at distance 1. */
function share(n: number): number {
  const half = 0.6 * Math.sin(Math.PI / Math.max(n, 3));
  return half / (1 + half);
}

/** Ranks on a circle, the first at `turn`, clockwise. */
function circle(centre: Point, reach: number, ranks: number[], turn = -Math.PI / 2): Point[] {
  const points: Point[] = [];
  ranks.forEach((rank, i) => {
    const angle = (ranks.length === 2 ? Math.PI : turn) + (2 * Math.PI * i) / ranks.length;
    points[rank] = { x: centre.x + reach * Math.cos(angle), y: centre.y + reach * Math.sin(angle) };
  });
  return points;
}

function ringOfRings(groups: number[][], aspect: number): Places {
  const most = Math.max(...groups.map((group) => group.length));
  const half = Math.sin(Math.PI / groups.length);
  const long = EDGE * Math.max(aspect, 1 / aspect);
  const hull = (groups.length === 2 ? Math.min(EDGE, long / 2) : (EDGE * half) / (1 + half)) * 0.94;
  const centres = circle({ x: 0, y: 0 }, EDGE - hull, groups.map((_, i) => i));
  if (groups.length === 2) {
    const away = Math.min(long - hull, hull * 1.2);
    [-away, away].forEach((at, i) => (centres[i] = aspect >= 1 ? { x: 0, y: at } : { x: at, y: 0 }));
  }
  const radius = Math.min(0.2, hull * 0.9 * share(most));
  const points: Point[] = [];
  // Turned a little, so that lines from one group to the other do not run through ranks in between.
  const turn = -Math.PI / 2 - Math.PI / 2 / most;
  groups.forEach((group, i) => Object.assign(points, circle(centres[i], hull * 0.9 - radius, group, turn)));
  const hulls = centres.map((centre) => ({ ...centre, radius: hull }));
  return { kind: 'ring', points, ofNode: [], radius, groups, hulls };
}

/** Each rank's parent if the transfers of the whole schedule, ways apart, form a tree; null if they do not. */
export function treeParents(schedule: Schedule): number[] | null {
  const { ranks } = schedule;
  if (ranks < 3) return null;
  const near: Set<number>[] = Array.from({ length: ranks }, () => new Set());
  let edges = 0;
  for (let t = 0; t < schedule.src.length; t++) {
    const [a, b] = [schedule.src[t], schedule.dst[t]];
    if (!schedule.valid[t] || a === b || near[a].has(b)) continue;
    near[a].add(b);
    near[b].add(a);
    if (++edges >= ranks) return null;
  }
  if (edges !== ranks - 1) return null;
  let root = 0;
  for (let rank = 1; rank < ranks; rank++) if (near[rank].size > near[root].size) root = rank;
  const parents = new Array<number>(ranks).fill(-1);
  const queue = [root];
  const seen = new Set(queue);
  for (const rank of queue) {
    for (const other of [...near[rank]].sort((a, b) => a - b)) {
      if (seen.has(other)) continue;
      seen.add(other);
      parents[other] = rank;
      queue.push(other);
    }
  }
  return seen.size === ranks && Math.max(...near.map((n) => n.size)) > 2 ? parents : null;
}

function tree(ranks: number, parents: number[]): Places {
  const children: number[][] = Array.from({ length: ranks }, () => []);
  let root = 0;
  parents.forEach((parent, rank) => (parent < 0 ? (root = rank) : children[parent].push(rank)));
  const points = new Array<Point>(ranks);
  let leaves = 0;
  let deepest = 0;
  const place = (rank: number, depth: number): number => {
    deepest = Math.max(deepest, depth);
    const below = children[rank].map((child) => place(child, depth + 1));
    const x = below.length ? (below[0] + below[below.length - 1]) / 2 : leaves++;
    points[rank] = { x, y: depth };
    return x;
  };
  place(root, 0);
  const wide = Math.max(leaves - 1, 1);
  for (const point of points) {
    point.x = leaves > 1 ? (point.x / wide) * 1.64 - 0.82 : 0;
    point.y = (point.y / Math.max(deepest, 1)) * 1.6 - 0.8;
  }
  const radius = Math.min(0.16, (1.64 / wide) * 0.4, (1.6 / Math.max(deepest, 1)) * 0.3);
  return { kind: 'tree', points, ofNode: [], radius, groups: [], hulls: [] };
}

function levels(schedule: Schedule, cluster: ClusterData): Places {
  const ofNode = nodesOfRanks(cluster);
  const near: number[][] = cluster.nodes.map(() => []);
  cluster.links.src.forEach((src, i) => {
    near[src].push(cluster.links.dst[i]);
    near[cluster.links.dst[i]].push(src);
  });
  const level: number[] = cluster.nodes.map((_, node) => (ofNode[node] >= 0 ? 0 : -1));
  const queue = [...cluster.rank_node];
  for (const node of queue) {
    for (const other of near[node]) {
      if (level[other] >= 0) continue;
      level[other] = level[node] + 1;
      queue.push(other);
    }
  }
  const groups = byKey(cluster.rank_host);
  const gap = groups.length > 1 ? 0.6 : 0;
  const slots = schedule.ranks - 1 + gap * (groups.length - 1);
  const top = Math.max(1, ...level);
  const points: Point[] = [];
  let slot = 0;
  for (const group of groups) {
    for (const rank of group) points[rank] = { x: slots ? (slot++ / slots) * 1.7 - 0.85 : 0, y: 0.62 };
    slot += gap;
  }
  const order = cluster.nodes.map((_, node) => node).filter((node) => ofNode[node] < 0);
  order.sort((a, b) => level[a] - level[b] || a - b);
  for (const node of order) {
    const below = near[node].filter((other) => level[other] < level[node] && ofNode[other] >= 0);
    const x = below.length ? below.reduce((sum, other) => sum + points[ofNode[other]].x, 0) / below.length : 0;
    ofNode[node] = points.length;
    points.push({ x, y: 0.62 - (Math.max(level[node], 0) / top) * 1.3 });
  }
  spread(order.filter((node) => level[node] >= 0).map((node) => points[ofNode[node]]));
  const radius = Math.min(0.15, slots ? (1.7 / slots) * 0.36 : 0.15);
  const apart = groups.length > 1 && groups.some((group) => group.length > 1);
  return { kind: 'levels', points, ofNode, radius, groups: apart ? groups : [], hulls: [] };
}

/** Move apart nodes of one level that would stand on the same spot. */
function spread(points: Point[]): void {
  const rows = new Map<number, Point[]>();
  for (const point of points) rows.set(point.y, [...(rows.get(point.y) ?? []), point]);
  for (const row of rows.values()) {
    row.sort((a, b) => a.x - b.x);
    const least = Math.min(0.3, 1.7 / row.length);
    const close = row.some((point, i) => i > 0 && point.x - row[i - 1].x < least * 0.5);
    if (close) row.forEach((point, i) => (point.x = row.length > 1 ? (i / (row.length - 1)) * 1.7 - 0.85 : 0));
  }
}
