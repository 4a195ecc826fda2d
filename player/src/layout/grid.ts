/** Where the cells of the grid lie: one row per rank, one column per chunk. Arithmetic only. */

export interface GridLayout {
  left: number;
  top: number;
  /** Distance from one cell to the next. */
  stepX: number;
  stepY: number;
  /** Size of a cell. */
  width: number;
  height: number;
  rows: number;
  columns: number;
}

export function gridLayout(rows: number, columns: number, width: number, height: number): GridLayout {
  const stepFor = (left: number) => Math.min((width - left - 4) / columns, columns <= 2 ? 220 : 132);
  const top = 30;
  const stepY = Math.min((height - top - 4) / rows, 88);
  const left = stepY >= 13 ? (width < 420 ? 30 : 56) : 26;
  const stepX = stepFor(left);
  const gap = (step: number) => (step > 26 ? 6 : step > 12 ? 3 : step > 5 ? 1 : 0);
  return {
    left,
    top,
    stepX,
    stepY,
    width: stepX - gap(stepX),
    height: stepY - gap(stepY),
    rows,
    columns,
  };
}

export const cellX = (layout: GridLayout, column: number): number => layout.left + column * layout.stepX;
export const cellY = (layout: GridLayout, row: number): number => layout.top + row * layout.stepY;

/** The cell under a point, or null. */
export function cellAt(layout: GridLayout, x: number, y: number): { rank: number; chunk: number } | null {
  const chunk = Math.floor((x - layout.left) / layout.stepX);
  const rank = Math.floor((y - layout.top) / layout.stepY);
  return chunk >= 0 && chunk < layout.columns && rank >= 0 && rank < layout.rows ? { rank, chunk } : null;
}
