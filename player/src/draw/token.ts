/** The sign of a transfer: its chunk's number in its chunk's colour; round where it is added, square where it is kept. */
import { FONT, textOn, type Theme } from './theme';

export function drawToken(
  ctx: CanvasRenderingContext2D,
  theme: Theme,
  at: { x: number; y: number },
  token: { label: string; colour: string; reduce: boolean; size: number },
): void {
  const { label, colour, reduce, size } = token;
  ctx.font = `600 ${Math.round(size * 0.58)}px ${FONT}`;
  const text = size < 11 ? '' : reduce ? `+${label}` : label;
  const width = Math.max(size, text ? ctx.measureText(text).width + size * 0.5 : 0);
  ctx.beginPath();
  ctx.roundRect(at.x - width / 2, at.y - size / 2, width, size, reduce ? size / 2 : size * 0.16);
  ctx.fillStyle = colour;
  ctx.fill();
  ctx.lineWidth = 1.5;
  ctx.strokeStyle = theme.surface;
  ctx.stroke();
  if (!text) return;
  ctx.fillStyle = textOn(colour);
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.fillText(text, at.x, at.y + size * 0.03);
}
