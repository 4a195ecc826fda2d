/** The picture: where the ranks stand, what each of them holds, and the transfers on their way between them. */
import type { Places, Point } from '../layout/picture';
import { size } from '../model/bits';
import type { Frame } from '../model/frame';
import type { Provenance } from '../model/provenance';
import type { Run } from '../model/run';
import { chunkLabel } from '../model/text';
import { arrowhead, bent, loop, through, type Curve } from './curve';
import { chunkColour, FONT, type Theme } from './theme';
import { drawToken } from './token';

export interface PictureView {
  run: Run;
  frame: Frame;
  theme: Theme;
  places: Places;
  /** Pairs of ranks joined by a faint line; null for none. */
  skeleton: [number, number][] | null;
  width: number;
  height: number;
  provenance: Provenance | null;
  marked: Set<number>;
  /** Ranks that wait for each other in a circle, as pairs. */
  waits: [number, number][];
  faultyRank: number;
  /** Transfers that a problem is about. */
  faulty: Set<number>;
}

/** Above this many transfers at once, they are thin straight lines without heads and numbers. */
const MANY = 400;

/** Where the points of `places` lie on a canvas, and the radius of a rank there. */
export function placed(places: Places, width: number, height: number): { points: Point[]; radius: number } {
  const least = Math.min(width, height) / 2;
  const square = places.kind === 'ring';
  const [scaleX, scaleY] = square ? [least, least] : [width / 2, height / 2];
  const points = places.points.map(({ x, y }) => ({ x: width / 2 + x * scaleX, y: height / 2 + y * scaleY }));
  const radius = square ? places.radius * least : Math.min(places.radius * scaleX, 0.17 * least);
  return { points, radius: Math.min(Math.max(radius, 3), 44) };
}

export function drawPicture(ctx: CanvasRenderingContext2D, view: PictureView): void {
  const { places, width, height, run, provenance } = view;
  const { points, radius } = placed(places, width, height);
  drawGroups(ctx, view, points, radius);
  if (run.cluster && places.ofNode.length > run.schedule.ranks) drawLinks(ctx, view, points);
  else if (view.skeleton) drawSkeleton(ctx, view, points, view.skeleton);
  const curves = new Map<number, Curve>();
  const curveOf = (transfer: number): Curve => {
    let curve = curves.get(transfer);
    if (!curve) curves.set(transfer, (curve = curveFor(view, points, radius, transfer)));
    return curve;
  };
  if (provenance) drawRoutes(ctx, view, curveOf, provenance);
  else drawFlights(ctx, view, points, curveOf);
  drawWaits(ctx, view, points, radius);
  for (let rank = 0; rank < run.schedule.ranks; rank++) drawRank(ctx, view, rank, points[rank], radius);
  for (let hub = run.schedule.ranks; hub < points.length; hub++) drawHub(ctx, view, hub, points);
  if (!provenance) drawTokens(ctx, view, curveOf, radius);
}

function curveFor(view: PictureView, points: Point[], radius: number, transfer: number): Curve {
  const { run, places } = view;
  const [src, dst] = [run.schedule.src[transfer], run.schedule.dst[transfer]];
  if (src === dst) return loop(points[src], radius);
  const route = places.points.length > run.schedule.ranks ? run.route(src, dst) : [];
  if (route.length > 0 && run.cluster) {
    const { links } = run.cluster;
    const nodes = [links.src[route[0]], ...route.map((link) => links.dst[link])];
    return through(nodes.map((node) => points[places.ofNode[node]]), radius + 2, radius + 4, 3);
  }
  const reach = Math.hypot(points[dst].x - points[src].x, points[dst].y - points[src].y);
  const bend = places.kind === 'ring' && view.frame.flights.length <= MANY ? 0.09 : 0.05;
  return bent(points[src], points[dst], radius + 2, radius + 4, reach < radius * 3 ? bend : bend * 0.8);
}

function drawGroups(ctx: CanvasRenderingContext2D, view: PictureView, points: Point[], radius: number): void {
  const { places, theme } = view;
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = theme.dark ? '#1e2430' : '#eceef3';
  for (const hull of placed({ ...places, points: places.hulls }, view.width, view.height).points.keys()) {
    const least = Math.min(view.width, view.height) / 2;
    const { x, y, radius: reach } = places.hulls[hull];
    ctx.beginPath();
    ctx.arc(view.width / 2 + x * least, view.height / 2 + y * least, reach * least, 0, 2 * Math.PI);
    ctx.fill();
  }
  if (places.kind === 'levels') drawHosts(ctx, view, points, radius);
  ctx.restore();
}

/** The ranks of a host lie in one bar, with its name below. */
function drawHosts(ctx: CanvasRenderingContext2D, { places, theme }: PictureView, points: Point[], radius: number): void {
  ctx.lineCap = 'round';
  ctx.lineWidth = radius * 2 + Math.min(radius, 14);
  for (const group of places.groups) {
    const [first, last] = [points[group[0]], points[group[group.length - 1]]];
    ctx.beginPath();
    ctx.moveTo(first.x, first.y);
    ctx.lineTo(last.x + 0.01, last.y);
    ctx.stroke();
  }
  if (places.groups.length > 16) return;
  ctx.fillStyle = theme.soft;
  ctx.font = `500 11px ${FONT}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'top';
  places.groups.forEach((group, host) => {
    const x = group.reduce((sum, rank) => sum + points[rank].x, 0) / group.length;
    ctx.fillText(places.groups.length > 6 ? `${host}` : `host ${host}`, x, points[group[0]].y + radius + 14);
  });
}

/** Who ever talks to whom, so that one sees the shape also where nothing moves just now. */
function drawSkeleton(ctx: CanvasRenderingContext2D, { theme }: PictureView, points: Point[], pairs: [number, number][]): void {
  ctx.strokeStyle = theme.line;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  for (const [a, b] of pairs) {
    ctx.moveTo(points[a].x, points[a].y);
    ctx.lineTo(points[b].x, points[b].y);
  }
  ctx.stroke();
}

/** Every link of the cluster as a thin line, thicker the more transfers are on it. */
function drawLinks(ctx: CanvasRenderingContext2D, { run, places, frame, theme }: PictureView, points: Point[]): void {
  if (!run.cluster) return;
  const { links } = run.cluster;
  const load = new Map<number, number>();
  for (const { transfer, mode } of frame.flights) {
    if (mode === 'ahead') continue;
    for (const link of run.route(run.schedule.src[transfer], run.schedule.dst[transfer])) {
      load.set(link, (load.get(link) ?? 0) + 1);
    }
  }
  links.src.forEach((src, link) => {
    const [from, to] = [points[places.ofNode[src]], points[places.ofNode[links.dst[link]]]];
    if (!from || !to) return;
    const busy = load.get(link) ?? 0;
    ctx.strokeStyle = busy ? theme.accent : theme.faint;
    ctx.globalAlpha = busy ? 0.35 : 0.6;
    ctx.lineWidth = busy ? Math.min(2 + 1.6 * busy, 14) : 1;
    ctx.beginPath();
    ctx.moveTo(from.x, from.y);
    ctx.lineTo(to.x, to.y);
    ctx.stroke();
  });
  ctx.globalAlpha = 1;
}

function drawFlights(ctx: CanvasRenderingContext2D, view: PictureView, points: Point[], curveOf: (t: number) => Curve): void {
  const { run, frame, theme, marked } = view;
  if (frame.flights.length > MANY) {
    drawMany(ctx, view, points);
    return;
  }
  for (const { transfer, mode } of frame.flights) {
    if (!run.schedule.valid[transfer]) continue;
    const curve = curveOf(transfer);
    const dimmed = marked.size > 0 && !marked.has(transfer);
    const faulty = view.faulty.has(transfer);
    ctx.strokeStyle = ctx.fillStyle = faulty ? theme.danger : chunkColour(theme, run.schedule.chunk[transfer]);
    ctx.globalAlpha = (mode === 'ahead' ? 0.55 : 0.9) * (dimmed ? 0.15 : 1);
    ctx.lineWidth = marked.has(transfer) || faulty ? 4 : mode === 'ahead' ? 1.8 : 2.4;
    ctx.setLineDash(mode === 'ahead' ? [5, 5] : []);
    ctx.beginPath();
    curve.trace(ctx);
    ctx.stroke();
    ctx.setLineDash([]);
    arrowhead(ctx, curve.points[curve.points.length - 1], curve.angle, 9);
  }
  ctx.globalAlpha = 1;
}

/** Many transfers: straight lines, all of one colour at once, grown as far as they have come. */
function drawMany(ctx: CanvasRenderingContext2D, { run, frame, theme, marked }: PictureView, points: Point[]): void {
  const { src, dst, chunk, valid } = run.schedule;
  ctx.lineWidth = 0.8;
  for (let colour = 0; colour < theme.chunks.length; colour++) {
    ctx.strokeStyle = theme.chunks[colour];
    ctx.globalAlpha = marked.size > 0 ? 0.08 : 0.4;
    ctx.beginPath();
    for (const { transfer, mode, fraction } of frame.flights) {
      if (!valid[transfer] || chunk[transfer] % theme.chunks.length !== colour) continue;
      const [from, to] = [points[src[transfer]], points[dst[transfer]]];
      const share = mode === 'moving' ? fraction : 1;
      ctx.moveTo(from.x, from.y);
      ctx.lineTo(from.x + (to.x - from.x) * share, from.y + (to.y - from.y) * share);
    }
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
  ctx.lineWidth = 3;
  ctx.strokeStyle = theme.ink;
  for (const transfer of marked) {
    ctx.beginPath();
    ctx.moveTo(points[src[transfer]].x, points[src[transfer]].y);
    ctx.lineTo(points[dst[transfer]].x, points[dst[transfer]].y);
    ctx.stroke();
  }
}

function drawTokens(ctx: CanvasRenderingContext2D, view: PictureView, curveOf: (t: number) => Curve, radius: number): void {
  const { run, frame, theme, marked } = view;
  if (frame.flights.length > MANY) return;
  const full = Math.min(Math.max(radius * 0.8, 6), 28);
  for (const { transfer, mode, fraction } of frame.flights) {
    if (!run.schedule.valid[transfer] || (marked.size > 0 && !marked.has(transfer))) continue;
    const crowded = frame.flights.length > 2 * run.schedule.ranks && !marked.has(transfer);
    if (mode !== 'moving' && crowded) continue;
    const place = mode === 'moving' ? fraction : 0.5;
    ctx.globalAlpha = mode === 'ahead' ? 0.75 : 1;
    drawToken(ctx, theme, curveOf(transfer).at(place), {
      label: chunkLabel(run.schedule, transfer),
      colour: chunkColour(theme, run.schedule.chunk[transfer]),
      reduce: run.schedule.reduce[transfer] === 1,
      size: mode === 'moving' ? full : full * 0.86,
    });
  }
  ctx.globalAlpha = 1;
}

function drawRoutes(ctx: CanvasRenderingContext2D, view: PictureView, curveOf: (t: number) => Curve, provenance: Provenance): void {
  const { theme } = view;
  const colour = chunkColour(theme, provenance.chunk);
  const labelled = provenance.hops.length <= 48;
  const hops = provenance.hops.map((hop) => hop.transfer);
  for (const transfer of new Set([...hops, ...view.faulty])) {
    const curve = curveOf(transfer);
    ctx.strokeStyle = ctx.fillStyle = view.faulty.has(transfer) ? theme.danger : colour;
    ctx.lineWidth = 3.5;
    ctx.beginPath();
    curve.trace(ctx);
    ctx.stroke();
    arrowhead(ctx, curve.points[curve.points.length - 1], curve.angle, 11);
  }
  if (!labelled) return;
  ctx.font = `600 11px ${FONT}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  for (const { transfer, round } of provenance.hops) {
    const { x, y } = curveOf(transfer).at(0.5);
    ctx.beginPath();
    ctx.arc(x, y, 9, 0, 2 * Math.PI);
    ctx.fillStyle = theme.surface;
    ctx.fill();
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = colour;
    ctx.stroke();
    ctx.fillStyle = theme.ink;
    ctx.fillText(`${round + 1}`, x, y + 0.5);
  }
}

function drawWaits(ctx: CanvasRenderingContext2D, { waits, theme }: PictureView, points: Point[], radius: number): void {
  ctx.strokeStyle = ctx.fillStyle = theme.danger;
  for (const [who, whom] of waits) {
    if (!points[who] || !points[whom] || who === whom) continue;
    const curve = bent(points[who], points[whom], radius + 2, radius + 4, -0.12);
    ctx.lineWidth = 2.5;
    ctx.setLineDash([3, 4]);
    ctx.beginPath();
    curve.trace(ctx);
    ctx.stroke();
    ctx.setLineDash([]);
    arrowhead(ctx, curve.points[1], curve.angle, 10);
  }
}

/** A rank: its number, and around it one arc per chunk, the thicker the more of the chunk is there. */
function drawRank(ctx: CanvasRenderingContext2D, view: PictureView, rank: number, at: Point, radius: number): void {
  const { run, frame, theme, provenance } = view;
  const { chunks } = run.schedule;
  const { words } = run.timeline;
  const involved = provenance?.contributors.includes(rank) ?? false;
  ctx.beginPath();
  ctx.arc(at.x, at.y, radius, 0, 2 * Math.PI);
  ctx.fillStyle = theme.surface;
  ctx.fill();
  const hole = radius * 0.6;
  const shown = Math.min(chunks, 64);
  const step = (2 * Math.PI) / shown;
  const dense = step * radius < 1.6;
  if (dense) drawShare(ctx, view, rank, at, radius);
  for (let chunk = 0; chunk < shown && !dense; chunk++) {
    const share = Math.min(size(frame.state, (rank * chunks + chunk) * words, words) / run.whole, 1);
    if (share === 0) continue;
    const gap = shown > 1 && step > 0.25 ? 0.045 : 0;
    const thickness = (radius - hole) * (0.2 + 0.8 * share);
    const middle = hole + thickness / 2;
    ctx.globalAlpha = (provenance && provenance.chunk !== chunk ? 0.25 : 1) * (share === 1 ? 1 : 0.8);
    ctx.strokeStyle = chunkColour(theme, chunk);
    ctx.lineWidth = thickness;
    ctx.beginPath();
    ctx.arc(at.x, at.y, middle, -Math.PI / 2 + chunk * step + gap, -Math.PI / 2 + (chunk + 1) * step - gap);
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
  const target = provenance?.rank === rank;
  ctx.beginPath();
  ctx.arc(at.x, at.y, radius, 0, 2 * Math.PI);
  ctx.lineWidth = target || view.faultyRank === rank ? 3 : involved ? 2.5 : 1.25;
  ctx.strokeStyle = view.faultyRank === rank ? theme.danger : target ? theme.accent : involved ? theme.ink : theme.faint;
  ctx.stroke();
  if (radius < 6.5) return;
  ctx.fillStyle = theme.ink;
  ctx.font = `600 ${Math.max(8, Math.min(radius * 0.62, 18))}px ${FONT}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.fillText(`${rank}`, at.x, at.y + 0.5);
}

/** A rank that is too small for arcs: a ring, as far around as what it holds is of the whole buffer. */
function drawShare(ctx: CanvasRenderingContext2D, { run, frame, theme }: PictureView, rank: number, at: Point, radius: number): void {
  const { chunks } = run.schedule;
  const { words } = run.timeline;
  const held = size(frame.state, rank * chunks * words, chunks * words) / (chunks * run.whole);
  ctx.strokeStyle = theme.accent;
  ctx.lineWidth = radius * 0.35;
  ctx.beginPath();
  ctx.arc(at.x, at.y, radius * 0.8, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * Math.min(held, 1));
  ctx.stroke();
}

function drawHub(ctx: CanvasRenderingContext2D, { run, places, theme, width }: PictureView, hub: number, points: Point[]): void {
  const at = points[hub];
  const node = places.ofNode.indexOf(hub);
  ctx.fillStyle = theme.cell;
  ctx.strokeStyle = theme.soft;
  ctx.lineWidth = 1.25;
  ctx.beginPath();
  const hubs = places.points.length - run.schedule.ranks;
  const size = hubs > 24 ? 5 : 9;
  ctx.roundRect(at.x - size, at.y - size * 0.7, size * 2, size * 1.4, 3);
  ctx.fill();
  ctx.stroke();
  ctx.fillStyle = theme.soft;
  ctx.font = `500 10.5px ${FONT}`;
  const name = run.cluster?.nodes[node] ?? '';
  const beside = points.filter((point, i) => i >= run.schedule.ranks && i !== hub && Math.abs(point.y - at.y) < 4);
  const room = Math.min(width, ...beside.map((point) => Math.abs(point.x - at.x)));
  const wide = ctx.measureText(name).width;
  if (wide + 8 > room) return;
  const x = Math.min(Math.max(at.x, wide / 2 + 2), width - wide / 2 - 2);
  ctx.fillStyle = theme.cell;
  ctx.globalAlpha = 0.85;
  ctx.fillRect(x - wide / 2 - 3, at.y - size - 16, wide + 6, 14);
  ctx.globalAlpha = 1;
  ctx.fillStyle = theme.soft;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.fillText(name, x, at.y - size - 8.5);
}
