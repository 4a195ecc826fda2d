/** The grid: a row per rank, a column per chunk; in each cell one segment per rank whose contribution is in it. */
import { cellX, cellY, type GridLayout } from '../layout/grid';
import { has, size } from '../model/bits';
import type { Frame } from '../model/frame';
import type { Provenance } from '../model/provenance';
import type { Run } from '../model/run';
import { chunkLabel } from '../model/text';
import { arrowhead, bent } from './curve';
import { chunkColour, FONT, textOn, type Theme } from './theme';
import { drawToken } from './token';

export interface GridView {
  run: Run;
  frame: Frame;
  theme: Theme;
  layout: GridLayout;
  provenance: Provenance | null;
  /** Transfers to bring out; the others step back. Empty for none. */
  marked: Set<number>;
  /** Cells with a problem, as `rank * chunks + chunk`. */
  faulty: Set<number>;
  /** Whether transfers are drawn as well. */
  arrows: boolean;
}

/** Above this many transfers at once, only cells are drawn: arrows would be a grey area. */
const MANY = 260;

export function drawGrid(ctx: CanvasRenderingContext2D, view: GridView): void {
  drawLabels(ctx, view);
  const { layout, run, provenance } = view;
  for (let rank = 0; rank < layout.rows; rank++) {
    for (let chunk = 0; chunk < layout.columns; chunk++) {
      ctx.globalAlpha = provenance && provenance.chunk !== chunk ? 0.28 : 1;
      drawCell(ctx, view, rank, chunk);
    }
  }
  ctx.globalAlpha = 1;
  if (provenance) drawProvenance(ctx, view, provenance);
  else if (view.arrows && layout.columns * layout.rows <= 1024) drawTransfers(ctx, view);
  for (const cell of view.faulty) {
    const [rank, chunk] = [Math.floor(cell / run.schedule.chunks), cell % run.schedule.chunks];
    if (rank < layout.rows && chunk < layout.columns) outline(ctx, view, rank, chunk, view.theme.danger, [4, 2]);
  }
}

function drawLabels(ctx: CanvasRenderingContext2D, { layout, run, theme, provenance }: GridView): void {
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
  const widest = `${layout.columns - 1}`.length * 7 + 6;
  const everyColumn = Math.max(1, Math.ceil(widest / layout.stepX));
  for (let chunk = 0; chunk < layout.columns; chunk += everyColumn) {
    const x = cellX(layout, chunk) + layout.width / 2;
    const colour = chunkColour(theme, chunk);
    const text = layout.stepX >= 62 ? `chunk ${chunk}` : `${chunk}`;
    ctx.font = `600 11.5px ${FONT}`;
    const width = Math.min(Math.max(ctx.measureText(text).width + 12, 18), Math.max(layout.width, widest));
    ctx.globalAlpha = provenance && provenance.chunk !== chunk ? 0.35 : 1;
    ctx.fillStyle = colour;
    ctx.beginPath();
    ctx.roundRect(x - width / 2, 3, width, 18, run.schedule.chunks > 1 && layout.stepX < 22 ? 3 : 9);
    ctx.fill();
    ctx.fillStyle = textOn(colour);
    ctx.fillText(text, x, 12.5);
  }
  ctx.globalAlpha = 1;
}

function drawCell(ctx: CanvasRenderingContext2D, view: GridView, rank: number, chunk: number): void {
  const { run, frame, theme, layout } = view;
  const { width, height } = layout;
  const x = cellX(layout, chunk);
  const y = cellY(layout, rank);
  const { words } = run.timeline;
  const cell = rank * run.schedule.chunks + chunk;
  const count = size(frame.state, cell * words, words);
  const colour = chunkColour(theme, chunk);
  const roundness = Math.min(7, width * 0.12, height * 0.2);
  const alpha = ctx.globalAlpha;

  ctx.beginPath();
  ctx.roundRect(x, y, width, height, roundness);
  ctx.fillStyle = theme.cell;
  ctx.fill();
  const complete = count >= run.whole;
  if (complete) {
    ctx.fillStyle = colour;
    ctx.fill();
  } else if (count > 0) {
    const bar = barHeight(height);
    ctx.save();
    ctx.clip();
    drawSegments(ctx, view, cell * words, { x, y: y + height - bar, width, height: bar }, colour);
    if (bar === height && width > 30 && height > 13) {
      ctx.fillStyle = theme.cell;
      ctx.globalAlpha = alpha * 0.78;
      ctx.fillRect(x + width / 2 - 15, y + height / 2 - 7, 30, 14);
      ctx.globalAlpha = alpha;
    }
    ctx.restore();
  }
  if (width > 5 && height > 5) {
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
  if (count > 0 && width > 24 && height > 13) label(ctx, view, { x, y, width, height }, count, complete, chunk, rank);
  if (frame.fresh.has(cell) && !view.provenance) outline(ctx, view, rank, chunk, theme.ink, []);
}

/** The segments lie along the bottom where there is room for words above them. */
const barHeight = (height: number): number => (height > 30 ? Math.min(18, height * 0.3) : height);

function label(
  ctx: CanvasRenderingContext2D,
  { run, theme, frame }: GridView,
  box: { x: number; y: number; width: number; height: number },
  count: number,
  complete: boolean,
  chunk: number,
  rank: number,
): void {
  const tall = box.height > 30;
  const middle = tall && !complete ? box.y + (box.height - barHeight(box.height)) / 2 + 1 : box.y + box.height / 2 + 0.5;
  ctx.font = `600 ${tall ? 13 : 11}px ${FONT}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.fillStyle = complete ? textOn(chunkColour(theme, chunk)) : theme.ink;
  let text = `${count}/${run.whole}`;
  if (run.origin) {
    const { words } = run.timeline;
    const right = has(frame.state, (rank * run.schedule.chunks + chunk) * words, run.origin[chunk]);
    text = box.width > 76 ? `from rank ${run.origin[chunk]}` : right ? '✓' : '✗';
  } else if (complete && box.width > 44) text = `${text} ✓`;
  ctx.fillText(text, box.x + box.width / 2, middle);
}

/** One slice per rank, filled where the rank's contribution is in; a plain share where slices would be too thin. */
function drawSegments(
  ctx: CanvasRenderingContext2D,
  { run, frame, theme }: GridView,
  offset: number,
  box: { x: number; y: number; width: number; height: number },
  colour: string,
): void {
  const { ranks } = run.schedule;
  const step = box.width / ranks;
  if (step < 2.4) {
    const share = size(frame.state, offset, run.timeline.words) / run.whole;
    ctx.fillStyle = colour;
    ctx.fillRect(box.x, box.y, box.width * Math.min(share, 1), box.height);
    return;
  }
  const gap = step > 6 ? 1.5 : 0.6;
  for (let rank = 0; rank < ranks; rank++) {
    ctx.fillStyle = has(frame.state, offset, rank) ? colour : theme.slot;
    ctx.fillRect(box.x + rank * step + gap / 2, box.y, step - gap, box.height);
  }
}

function outline(
  ctx: CanvasRenderingContext2D,
  { layout }: GridView,
  rank: number,
  chunk: number,
  colour: string,
  dash: number[],
): void {
  if (layout.width < 6) return;
  ctx.lineWidth = layout.width > 16 ? 2.5 : 1.5;
  ctx.strokeStyle = colour;
  ctx.setLineDash(dash);
  ctx.beginPath();
  const roundness = Math.min(7, layout.width * 0.12, layout.height * 0.2);
  ctx.roundRect(cellX(layout, chunk), cellY(layout, rank), layout.width, layout.height, roundness);
  ctx.stroke();
  ctx.setLineDash([]);
}

function drawTransfers(ctx: CanvasRenderingContext2D, view: GridView): void {
  const { run, frame, theme, layout, marked } = view;
  const { src, dst, chunk, count, reduce, valid } = run.schedule;
  if (frame.flights.length > MANY || layout.stepX < 16 || layout.stepY < 12) return;
  for (const { transfer, mode, fraction } of frame.flights) {
    if (!valid[transfer] || src[transfer] === dst[transfer]) continue;
    if (Math.max(src[transfer], dst[transfer]) >= layout.rows || chunk[transfer] >= layout.columns) continue;
    const last = Math.min(chunk[transfer] + count[transfer], layout.columns) - 1;
    const column = (cellX(layout, chunk[transfer]) + cellX(layout, last) + layout.width) / 2;
    const aside = Math.min(layout.width * 0.28, 26) * (dst[transfer] > src[transfer] ? 1 : -1);
    const from = { x: column + aside, y: cellY(layout, src[transfer]) + layout.height / 2 };
    const to = { x: column + aside, y: cellY(layout, dst[transfer]) + layout.height / 2 };
    const distance = Math.abs(to.y - from.y);
    const bulge = Math.min(layout.stepX * 0.34, 10 + distance * 0.06) / (distance || 1);
    const curve = bent(from, to, layout.height * 0.2, layout.height * 0.2, -bulge / 2);
    const colour = theme.ink;
    const dimmed = marked.size > 0 && !marked.has(transfer);
    ctx.globalAlpha = (mode === 'ahead' ? 0.5 : mode === 'done' ? 0.6 : 0.8) * (dimmed ? 0.3 : 1);
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.lineWidth = marked.has(transfer) ? 2.8 : 1.8;
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
  const x = cellX(layout, provenance.chunk) + layout.width / 2;
  ctx.strokeStyle = ctx.fillStyle = theme.ink;
  for (const { src, dst } of provenance.hops) {
    if (Math.max(src, dst) >= layout.rows || src === dst) continue;
    const aside = Math.min(layout.width * 0.3, 24) * (dst > src ? 1 : -1);
    const from = { x: x + aside, y: cellY(layout, src) + layout.height / 2 };
    const to = { x: x + aside, y: cellY(layout, dst) + layout.height / 2 };
    const distance = Math.abs(to.y - from.y);
    const bulge = Math.min(layout.stepX * 0.4, 8 + distance * 0.08) / (distance || 1);
    const curve = bent(from, to, layout.height * 0.15, layout.height * 0.15, -bulge / 2);
    ctx.lineWidth = layout.stepX > 20 ? 2 : 1;
    ctx.beginPath();
    curve.trace(ctx);
    ctx.stroke();
    arrowhead(ctx, curve.points[1], curve.angle, Math.min(8, layout.stepY * 0.6));
  }
  outline(ctx, view, provenance.rank, provenance.chunk, theme.accent, []);
}
