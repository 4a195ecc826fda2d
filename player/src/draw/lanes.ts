/** The time view's lanes: per rank one, with what it sends and receives over time; hatched where it waits. */
import { gaps, stacked, type Trace } from '../model/trace';
import type { Run } from '../model/run';
import { duration, rangeLabel } from '../model/text';
import { chunkColour, FONT, textOn, type Theme } from './theme';

export interface Window {
  /** Nanoseconds at the left and the right edge. */
  from: number;
  to: number;
}

export interface LanesView {
  run: Run;
  trace: Trace;
  theme: Theme;
  width: number;
  height: number;
  window: Window;
  cursor: number;
  /** The event under the pointer or picked, -1 for none. */
  event: number;
  critical: Set<number>;
}

export const LEFT = 56;
export const TOP = 24;

interface Slot {
  event: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Where each event of the trace lies; a lane is divided into bands of kinds, and those by what overlaps. */
export function slotsOf({ run, trace, width, height, window }: LanesView): Slot[] {
  const slots: Slot[] = [];
  const lane = laneHeight(run, height);
  const band = (lane * 0.86) / trace.bands.length;
  const scale = (width - LEFT - 4) / (window.to - window.from || 1);
  for (let rank = 0; rank < Math.min(run.schedule.ranks, 64); rank++) {
    for (const [place, kinds] of trace.bands.entries()) {
      const placed = stacked(trace, rank, kinds);
      const tracks = placed.reduce((most, { track }) => Math.max(most, track + 1), 1);
      for (const { event, track } of placed) {
        const from = Math.max(trace.start[event], window.from);
        const to = Math.min(trace.end[event], window.to);
        if (to < from) continue;
        slots.push({
          event,
          x: LEFT + (from - window.from) * scale,
          y: TOP + rank * lane + place * band + (track * band) / tracks,
          width: Math.max((to - from) * scale, 1),
          height: band / tracks,
        });
      }
    }
  }
  return slots;
}

export const laneHeight = (run: Run, height: number): number => (height - TOP - 4) / Math.min(run.schedule.ranks, 64);

/** The rank whose lane is at a height, -1 for none. */
export function rankAtY(run: Run, y: number, height: number): number {
  const rank = Math.floor((y - TOP) / laneHeight(run, height));
  return rank >= 0 && rank < Math.min(run.schedule.ranks, 64) ? rank : -1;
}

export const timeAtX = (x: number, width: number, window: Window): number =>
  window.from + ((x - LEFT) / (width - LEFT - 4)) * (window.to - window.from);

export function drawLanes(ctx: CanvasRenderingContext2D, view: LanesView): void {
  const { run, trace, theme, width, height, window, cursor } = view;
  const lane = laneHeight(run, height);
  const scale = (width - LEFT - 4) / (window.to - window.from || 1);
  const x = (time: number) => LEFT + (time - window.from) * scale;
  drawScale(ctx, view, x);
  ctx.save();
  ctx.beginPath();
  ctx.rect(LEFT, TOP - 2, width - LEFT - 2, height - TOP + 2);
  ctx.clip();
  const hatch = hatching(ctx, theme);
  for (let rank = 0; rank < Math.min(run.schedule.ranks, 64); rank++) {
    const y = TOP + rank * lane;
    ctx.fillStyle = theme.cell;
    ctx.fillRect(LEFT, y, width, lane * 0.86);
    const spans = gaps(trace, rank);
    ctx.fillStyle = hatch;
    for (let i = 0; i < spans.length; i += 2) ctx.fillRect(x(spans[i]), y, (spans[i + 1] - spans[i]) * scale, lane * 0.86);
  }
  for (const slot of slotsOf(view)) drawSlot(ctx, view, slot);
  ctx.restore();
  ctx.fillStyle = theme.soft;
  ctx.font = `500 12px ${FONT}`;
  ctx.textAlign = 'right';
  ctx.textBaseline = 'middle';
  const every = Math.max(1, Math.ceil(12 / lane));
  for (let rank = 0; rank < Math.min(run.schedule.ranks, 64); rank += every) {
    ctx.fillText(`rank ${rank}`, LEFT - 8, TOP + rank * lane + lane * 0.43);
  }
  if (cursor < window.from || cursor > window.to) return;
  ctx.strokeStyle = ctx.fillStyle = theme.accent;
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.moveTo(x(cursor), TOP - 6);
  ctx.lineTo(x(cursor), height);
  ctx.stroke();
  ctx.beginPath();
  ctx.arc(x(cursor), TOP - 7, 4, 0, 2 * Math.PI);
  ctx.fill();
}

function drawSlot(ctx: CanvasRenderingContext2D, view: LanesView, { event, x, y, width, height }: Slot): void {
  const { trace, theme } = view;
  const kind = trace.data.kinds[trace.kind[event]];
  const strong = trace.bands.length === 1 ? kind === 'reduce' : trace.kind[event] === 0;
  const colour = trace.chunk[event] < 0 ? theme.ink : chunkColour(theme, trace.chunk[event]);
  const inset = height > 6 ? 1 : 0;
  ctx.globalAlpha = strong || trace.chunk[event] < 0 ? 1 : kind === 'copy' ? 0.3 : 0.62;
  ctx.fillStyle = colour;
  ctx.fillRect(x, y + inset, Math.max(width - (width > 3 ? 1 : 0), 0.8), height - inset);
  ctx.globalAlpha = 1;
  if (view.critical.has(event)) {
    ctx.strokeStyle = theme.danger;
    ctx.lineWidth = height > 5 ? 2 : 1;
    ctx.strokeRect(x + 1, y + inset + 1, Math.max(width - 3, 0.5), Math.max(height - inset - 2, 0.5));
  }
  if (view.event === event) {
    ctx.strokeStyle = theme.ink;
    ctx.lineWidth = 2;
    ctx.strokeRect(x, y, width, height);
  }
  if (height < 11 || trace.chunk[event] < 0) return;
  const label = rangeLabel(trace.chunk[event], trace.chunks[event]);
  const full = `${kind} ${label}`;
  ctx.font = `600 ${Math.min(11, height - 2)}px ${FONT}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  const text = ctx.measureText(full).width + 8 < width ? full : label;
  if (ctx.measureText(text).width + 4 > width) return;
  ctx.fillStyle = strong ? textOn(colour) : theme.ink;
  ctx.fillText(text, x + width / 2, y + height / 2 + 0.5);
}

function drawScale(ctx: CanvasRenderingContext2D, { theme, window, width, height }: LanesView, x: (time: number) => number): void {
  const span = window.to - window.from;
  const least = (span * 90) / Math.max(width - LEFT, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= least) ?? power * 10;
  ctx.font = `500 11px ${FONT}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.strokeStyle = theme.line;
  ctx.fillStyle = theme.soft;
  ctx.lineWidth = 1;
  for (let time = Math.ceil(window.from / step) * step; time <= window.to; time += step) {
    ctx.fillText(duration(time), Math.min(Math.max(x(time), LEFT + 8), width - 22), 8);
    ctx.beginPath();
    ctx.moveTo(x(time), TOP - 6);
    ctx.lineTo(x(time), height);
    ctx.stroke();
  }
}

function hatching(ctx: CanvasRenderingContext2D, theme: Theme): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const pen = tile.getContext('2d');
  if (!pen) return theme.line;
  pen.strokeStyle = theme.faint;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift - 1, 9);
    pen.lineTo(shift + 9, -1);
  }
  pen.stroke();
  return ctx.createPattern(tile, 'repeat') ?? theme.line;
}
