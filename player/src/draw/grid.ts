/** The grid: a row per rank, a column per chunk; in each cell one segment per rank whose contribution is in it. */
import { cellX, cellY, type GridLayout } from '../layout/grid';
import { has, size } from '../model/bits';
import type { Flight } from '../model/frame';
import type { Provenance } from '../model/provenance';
import type { Run } from '../model/run';
import { chunkLabel } from '../model/text';
import { arrowhead, bent, type Curve } from './curve';
import { chunkColour, FONT, textOn, type Theme } from './theme';
import { drawToken } from './token';

export interface CellsView {
  run: Run;
  /** What each rank holds, and which cells have just been written. */
  state: Uint32Array;
  fresh: ReadonlySet<number>;
  theme: Theme;
  layout: GridLayout;
  provenance: Provenance | null;
}

export interface GridView extends CellsView {
  flights: Flight[];
  /** Transfers to bring out; the others step back. Empty for none. */
  marked: Set<number>;
  /** Cells with a problem, as `rank * chunks + chunk`. */
  faulty: Set<number>;
  /** Transfers that a problem is about. */
  faultyTransfers: Set<number>;
}

/** Above this many transfers at once, only cells are drawn: arrows would be a grey area. */
const MANY = 260;

/** The layer below: names and cells, which stay while transfers move. */
export function drawCells(ctx: CanvasRenderingContext2D, view: CellsView): void {
  drawLabels(ctx, view);
  const { layout, run, provenance } = view;
  for (let rank = 0; rank < layout.rows; rank++) {
    for (let chunk = 0; chunk < layout.columns; chunk++) {
      ctx.globalAlpha = provenance && provenance.chunk !== chunk ? 0.28 : 1;
      drawCell(ctx, view, rank, chunk);
    }
  }
  ctx.globalAlpha = 1;
  if (run.origin && layout.stepX < 24) drawBlocks(ctx, view, run.origin);
}

/** The layer above: the transfers, or the way of the chunk that is explained, and what is wrong. */
export function drawMoves(ctx: CanvasRenderingContext2D, view: GridView): void {
  const { layout, run, provenance, theme } = view;
  if (provenance) drawProvenance(ctx, view, provenance);
  else drawTransfers(ctx, view);
  for (const cell of view.faulty) {
    const [rank, chunk] = [Math.floor(cell / run.schedule.chunks), cell % run.schedule.chunks];
    if (rank < layout.rows && chunk < layout.columns) outline(ctx, view, rank, chunk, theme.danger, 2);
  }
}

function drawLabels(ctx: CanvasRenderingContext2D, { layout, theme, provenance }: CellsView): void {
  ctx.textBaseline = 'middle';
  const everyRow = Math.max(1, Math.ceil(11 / layout.stepY));
  ctx.font = `500 12px ${FONT}`;
  ctx.textAlign = 'right';
  for (let rank = 0; rank < layout.rows; rank += everyRow) {
    ctx.fillStyle = provenance?.rank === rank ? theme.accent : theme.soft;
    const text = layout.left >= 50 ? `rank ${rank}` : `${rank}`;
    ctx.fillText(text, layout.left - 8, cellY(layout, rank) + layout.height / 2);
  }
  ctx.textAlign = 'center';
  if (layout.stepX < 24) {
    drawThinLabels(ctx, layout, theme);
    return;
  }
  ctx.font = `600 11.5px ${FONT}`;
  for (let chunk = 0; chunk < layout.columns; chunk++) {
    const x = cellX(layout, chunk) + layout.width / 2;
    const colour = chunkColour(theme, chunk);
    const text = layout.stepX >= 62 ? `chunk ${chunk}` : `${chunk}`;
    const width = Math.min(ctx.measureText(text).width + 12, layout.width);
    ctx.globalAlpha = provenance && provenance.chunk !== chunk ? 0.35 : 1;
    ctx.fillStyle = colour;
    ctx.beginPath();
    ctx.roundRect(x - width / 2, 3, width, 18, 9);
    ctx.fill();
    ctx.fillStyle = textOn(colour);
    ctx.fillText(text, x, 12.5);
  }
  ctx.globalAlpha = 1;
}

/** Many columns: a stripe of the chunk's colour over each, and the numbers of some. */
function drawThinLabels(ctx: CanvasRenderingContext2D, layout: GridLayout, theme: Theme): void {
  const room = `${layout.columns - 1}`.length * 7 + 8;
  const every = [1, 2, 4, 8, 16, 32].find((step) => step * layout.stepX >= room) ?? 64;
  ctx.font = `500 11px ${FONT}`;
  for (let chunk = 0; chunk < layout.columns; chunk++) {
    ctx.fillStyle = chunkColour(theme, chunk);
    ctx.fillRect(cellX(layout, chunk), 20, layout.width, 5);
    ctx.fillStyle = theme.soft;
    if (chunk % every === 0) ctx.fillText(`${chunk}`, cellX(layout, chunk) + layout.width / 2, 11);
  }
}

/** Many columns: a line between the chunks of one rank and those of the next. */
function drawBlocks(ctx: CanvasRenderingContext2D, { layout, theme }: CellsView, origin: Int32Array): void {
  ctx.strokeStyle = theme.faint;
  ctx.lineWidth = 1;
  for (let chunk = 1; chunk < layout.columns; chunk++) {
    if (origin[chunk] === origin[chunk - 1]) continue;
    const x = cellX(layout, chunk) - (layout.stepX - layout.width) / 2;
    ctx.beginPath();
    ctx.moveTo(x, 18);
    ctx.lineTo(x, cellY(layout, layout.rows));
    ctx.stroke();
  }
}

function drawCell(ctx: CanvasRenderingContext2D, view: CellsView, rank: number, chunk: number): void {
  const { run, state, theme, layout } = view;
  const { width, height } = layout;
  const x = cellX(layout, chunk);
  const y = cellY(layout, rank);
  const { words } = run.timeline;
  const cell = rank * run.schedule.chunks + chunk;
  const count = size(state, cell * words, words);
  const colour = chunkColour(theme, chunk);
  const complete = count >= run.whole;
  const alpha = ctx.globalAlpha;
  if (width < 14 && height < 20) {
    ctx.fillStyle = count > 0 ? colour : theme.cell;
    if (count > 0 && !complete) ctx.globalAlpha = alpha * (0.16 + (0.56 * count) / run.whole);
    ctx.fillRect(x, y, width, height);
    ctx.globalAlpha = alpha;
    if (view.fresh.has(cell) && !view.provenance) outline(ctx, view, rank, chunk, theme.ink);
    return;
  }
  const roundness = Math.min(7, width * 0.12, height * 0.2);
  ctx.beginPath();
  ctx.roundRect(x, y, width, height, roundness);
  ctx.fillStyle = theme.cell;
  ctx.fill();
  if (complete) {
    ctx.fillStyle = colour;
    ctx.fill();
  } else if (count > 0) {
    const bar = barHeight(height);
    ctx.save();
    if (width / run.schedule.ranks < 2.4 && bar === height) {
      ctx.globalAlpha = alpha * (0.14 + (0.6 * count) / run.whole);
      ctx.fillStyle = colour;
      ctx.fill();
    } else {
      ctx.clip();
      drawSegments(ctx, view, cell * words, { x, y: y + height - bar, width, height: bar }, colour);
    }
    ctx.restore();
  }
  if (width > 14 && height > 9) {
    ctx.lineWidth = 1;
    ctx.strokeStyle = count > 0 ? colour : theme.line;
    if (count === 0) ctx.setLineDash([3, 3]);
    ctx.stroke();
    ctx.setLineDash([]);
  }
  if (!run.allRequired && run.required[cell] && width > 8) {
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = theme.ink;
    ctx.strokeRect(x + 2.5, y + 2.5, width - 5, height - 5);
  }
  if (count > 0 && width > 24 && (height > 19 || (complete && height > 13))) label(ctx, view, { x, y, width, height }, count, complete, chunk, rank);
  if (view.fresh.has(cell) && !view.provenance) outline(ctx, view, rank, chunk, theme.ink);
}

/** The segments lie along the bottom where there is room for words above them. */
const barHeight = (height: number): number => (height > 30 ? Math.min(18, height * 0.3) : height > 19 ? 6 : height);

function label(
  ctx: CanvasRenderingContext2D,
  { run, theme, state }: CellsView,
  box: { x: number; y: number; width: number; height: number },
  count: number,
  complete: boolean,
  chunk: number,
  rank: number,
): void {
  const tall = box.height > 30;
  const middle = box.height > 19 && !complete ? box.y + (box.height - barHeight(box.height)) / 2 + 1 : box.y + box.height / 2 + 0.5;
  ctx.font = `600 ${tall ? 13 : 11}px ${FONT}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.fillStyle = complete ? textOn(chunkColour(theme, chunk)) : theme.ink;
  let text = `${count}/${run.whole}`;
  if (run.origin) {
    const { words } = run.timeline;
    const right = has(state, (rank * run.schedule.chunks + chunk) * words, run.origin[chunk]);
    text = box.width > 76 ? `from rank ${run.origin[chunk]}` : right ? '✓' : '✗';
  } else if (complete && box.width > 44) text = `${text} ✓`;
  ctx.fillText(text, box.x + box.width / 2, middle);
}

/** One slice per rank, filled where the rank's contribution is in; a plain share where slices would be too thin. */
function drawSegments(
  ctx: CanvasRenderingContext2D,
  { run, state, theme }: CellsView,
  offset: number,
  box: { x: number; y: number; width: number; height: number },
  colour: string,
): void {
  const { ranks } = run.schedule;
  const step = box.width / ranks;
  if (step < 2.4) {
    const share = size(state, offset, run.timeline.words) / run.whole;
    ctx.fillStyle = colour;
    ctx.fillRect(box.x, box.y, box.width * Math.min(share, 1), box.height);
    return;
  }
  const gap = step > 6 ? 1.5 : 0.6;
  for (let rank = 0; rank < ranks; rank++) {
    ctx.fillStyle = has(state, offset, rank) ? colour : theme.slot;
    ctx.fillRect(box.x + rank * step + gap / 2, box.y, step - gap, box.height);
  }
}

function outline(ctx: CanvasRenderingContext2D, { layout }: CellsView, rank: number, chunk: number, colour: string, apart = 0): void {
  if (layout.width < 4) return;
  ctx.lineWidth = layout.width > 16 ? 2.5 : 1.5;
  ctx.strokeStyle = colour;
  ctx.beginPath();
  const roundness = Math.min(7, layout.width * 0.12, layout.height * 0.2);
  const [x, y] = [cellX(layout, chunk) - apart, cellY(layout, rank) - apart];
  ctx.roundRect(x, y, layout.width + 2 * apart, layout.height + 2 * apart, roundness + apart);
  ctx.stroke();
}

/** The line from one row to another in some columns: down beside their right edge, up beside their left. */
function way(layout: GridLayout, first: number, last: number, src: number, dst: number): Curve {
  const inset = Math.min(7, layout.width * 0.14);
  const x = dst > src ? cellX(layout, last) + layout.width - inset : cellX(layout, first) + inset;
  const from = { x, y: cellY(layout, src) + layout.height / 2 };
  const to = { x, y: cellY(layout, dst) + layout.height / 2 };
  const distance = Math.abs(to.y - from.y) || 1;
  const bulge = Math.min(layout.stepX - layout.width + 2, 8 + distance * 0.03) / distance;
  return bent(from, to, layout.height * 0.22, layout.height * 0.22, -bulge);
}

function drawTransfers(ctx: CanvasRenderingContext2D, view: GridView): void {
  const { run, flights, theme, layout, marked } = view;
  const { src, dst, chunk, count, reduce, valid } = run.schedule;
  if (flights.length > MANY || layout.stepX < 16 || layout.stepY < 12) return;
  for (const { transfer, mode, fraction } of flights) {
    if (!valid[transfer] || src[transfer] === dst[transfer]) continue;
    if (Math.max(src[transfer], dst[transfer]) >= layout.rows || chunk[transfer] >= layout.columns) continue;
    const last = Math.min(chunk[transfer] + count[transfer], layout.columns) - 1;
    const curve = way(layout, chunk[transfer], last, src[transfer], dst[transfer]);
    const faulty = view.faultyTransfers.has(transfer);
    const colour = faulty ? theme.danger : theme.ink;
    const dimmed = marked.size > 0 && !marked.has(transfer);
    ctx.globalAlpha = (mode === 'ahead' ? 0.5 : mode === 'done' ? 0.6 : 0.8) * (dimmed ? 0.3 : 1);
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.lineWidth = marked.has(transfer) || faulty ? 2.8 : 1.8;
    ctx.setLineDash(mode === 'ahead' ? [4, 4] : []);
    ctx.beginPath();
    curve.trace(ctx);
    ctx.stroke();
    ctx.setLineDash([]);
    arrowhead(ctx, curve.points[1], curve.angle, 8);
    ctx.globalAlpha = 1;
    if (mode === 'moving') {
      const token = Math.min(22, layout.stepY * 0.6, layout.stepX * 0.7);
      drawToken(ctx, theme, curve.at(fraction), {
        label: chunkLabel(run.schedule, transfer),
        colour: chunkColour(theme, chunk[transfer]),
        reduce: reduce[transfer] === 1,
        size: token,
      });
    }
  }
}

function drawProvenance(ctx: CanvasRenderingContext2D, view: GridView, provenance: Provenance): void {
  const { layout, theme } = view;
  if (provenance.chunk >= layout.columns) return;
  const faulty = [...view.faultyTransfers].map((transfer) => ({ transfer, src: view.run.schedule.src[transfer], dst: view.run.schedule.dst[transfer] }));
  for (const { transfer, src, dst } of [...provenance.hops, ...faulty]) {
    ctx.strokeStyle = ctx.fillStyle = view.faultyTransfers.has(transfer) ? theme.danger : theme.ink;
    if (Math.max(src, dst) >= layout.rows || src === dst) continue;
    const curve = way(layout, provenance.chunk, provenance.chunk, src, dst);
    ctx.lineWidth = layout.stepX > 20 ? 2 : 1;
    ctx.beginPath();
    curve.trace(ctx);
    ctx.stroke();
    arrowhead(ctx, curve.points[1], curve.angle, Math.min(8, layout.stepY * 0.6));
  }
  outline(ctx, view, provenance.rank, provenance.chunk, theme.accent);
}
