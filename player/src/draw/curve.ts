/** The line along which a transfer travels: bent a little to its right, so that two ways do not cover each other. */
import type { Point } from '../layout/picture';

export interface Curve {
  points: Point[];
  /** The place at a fraction of the way, 0 to 1. */
  at(fraction: number): Point;
  trace(ctx: CanvasRenderingContext2D): void;
  /** Direction of travel at the end, in radians. */
  angle: number;
}

/** From `from` to `to`, each shortened by a radius; `bend` is the sideways bulge as a share of the length. */
export function bent(from: Point, to: Point, startGap: number, endGap: number, bend: number): Curve {
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const length = Math.hypot(dx, dy) || 1;
  const middle = { x: (from.x + to.x) / 2 - dy * bend * 2, y: (from.y + to.y) / 2 + dx * bend * 2 };
  const away = (a: Point, b: Point, gap: number): Point => {
    const reach = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const step = Math.min(gap, length * 0.45) / reach;
    return { x: a.x + (b.x - a.x) * step, y: a.y + (b.y - a.y) * step };
  };
  const start = away(from, middle, startGap);
  const end = away(to, middle, endGap);
  return {
    points: [start, end],
    angle: Math.atan2(end.y - middle.y, end.x - middle.x),
    at(t) {
      const [a, b, c] = [(1 - t) * (1 - t), 2 * t * (1 - t), t * t];
      return { x: a * start.x + b * middle.x + c * end.x, y: a * start.y + b * middle.y + c * end.y };
    },
    trace(ctx) {
      ctx.moveTo(start.x, start.y);
      ctx.quadraticCurveTo(middle.x, middle.y, end.x, end.y);
    },
  };
}

/** A loop beside a place, for what a rank sends to itself. */
export function loop(at: Point, radius: number): Curve {
  const size = radius * 1.5;
  const centre = { x: at.x + radius + size * 0.5, y: at.y - radius * 0.2 };
  const place = (t: number): Point => {
    const angle = Math.PI * (1 - 2 * t) + 0.6 - 1.2 * t;
    return { x: centre.x + (size / 2) * Math.cos(angle) * 1.1, y: centre.y - (size / 2) * Math.sin(angle) };
  };
  return {
    points: [place(0), place(1)],
    angle: Math.PI,
    at: place,
    trace(ctx) {
      for (let i = 0; i <= 24; i++) {
        const { x, y } = place(i / 24);
        if (i === 0) ctx.moveTo(x, y);
        else ctx.lineTo(x, y);
      }
    },
  };
}

/** Through several places one after the other, shifted a little to the right of travel. */
export function through(places: Point[], startGap: number, endGap: number, shift: number): Curve {
  const moved = places.map((point, i) => {
    const before = places[Math.max(i - 1, 0)];
    const after = places[Math.min(i + 1, places.length - 1)];
    const length = Math.hypot(after.x - before.x, after.y - before.y) || 1;
    return { x: point.x - ((after.y - before.y) / length) * shift, y: point.y + ((after.x - before.x) / length) * shift };
  });
  const toward = (a: Point, b: Point, gap: number): Point => {
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const step = Math.min(gap / length, 0.45);
    return { x: a.x + (b.x - a.x) * step, y: a.y + (b.y - a.y) * step };
  };
  const last = moved.length - 1;
  const points = moved.slice();
  points[0] = toward(moved[0], moved[1], startGap);
  points[last] = toward(moved[last], moved[last - 1], endGap);
  const lengths = points.slice(1).map((point, i) => Math.hypot(point.x - points[i].x, point.y - points[i].y));
  const total = lengths.reduce((sum, length) => sum + length, 0) || 1;
  return {
    points,
    angle: Math.atan2(points[last].y - points[last - 1].y, points[last].x - points[last - 1].x),
    at(t) {
      let left = t * total;
      for (let i = 0; i < lengths.length; i++) {
        if (left <= lengths[i] || i === lengths.length - 1) {
          const share = lengths[i] ? Math.min(left / lengths[i], 1) : 1;
          return {
            x: points[i].x + (points[i + 1].x - points[i].x) * share,
            y: points[i].y + (points[i + 1].y - points[i].y) * share,
          };
        }
        left -= lengths[i];
      }
      return points[last];
    },
    trace(ctx) {
      points.forEach((point, i) => (i ? ctx.lineTo(point.x, point.y) : ctx.moveTo(point.x, point.y)));
    },
  };
}

/** A filled arrowhead with its tip at a point. */
export function arrowhead(ctx: CanvasRenderingContext2D, tip: Point, angle: number, size: number): void {
  ctx.beginPath();
  ctx.moveTo(tip.x, tip.y);
  ctx.lineTo(tip.x - size * Math.cos(angle - 0.42), tip.y - size * Math.sin(angle - 0.42));
  ctx.lineTo(tip.x - size * Math.cos(angle + 0.42), tip.y - size * Math.sin(angle + 0.42));
  ctx.closePath();
  ctx.fill();
}
