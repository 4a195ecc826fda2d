import { describe, expect, it } from 'vitest';
import { cellAt, cellX, cellY, gridLayout } from '../src/layout/grid';
import { firstGroups, placesOf, skeleton, treeParents } from '../src/layout/picture';
import { themeOf, textOn } from '../src/draw/theme';
import { caseOf } from './cases';

const scheduleOf = (collective: string, name: string, ranks: number) => caseOf(collective, name, ranks).run.schedule;

describe('the grid', () => {
  it.each([[4, 4], [1, 8], [64, 64], [8, 64]])('of %i by %i fits its box, and finds each cell under its middle', (rows, columns) => {
    const layout = gridLayout(rows, columns, 460, 520);
    expect(cellX(layout, columns - 1) + layout.width).toBeLessThanOrEqual(460);
    expect(cellY(layout, rows - 1) + layout.height).toBeLessThanOrEqual(520);
    for (const [rank, chunk] of [[0, 0], [rows - 1, columns - 1], [rows >> 1, columns >> 1]]) {
      const middle = [cellX(layout, chunk) + layout.width / 2, cellY(layout, rank) + layout.height / 2] as const;
      expect(cellAt(layout, ...middle)).toEqual({ rank, chunk });
    }
    expect(cellAt(layout, 2, 2)).toBeNull();
  });
});

describe('the picture', () => {
  it('of a tree has its root on top and every rank below its parent', () => {
    const schedule = scheduleOf('all_reduce', 'tree', 5);
    const parents = treeParents(schedule);
    expect(parents).toEqual([-1, 0, 0, 2, 0]);
    const { kind, points } = placesOf(schedule, null);
    expect(kind).toBe('tree');
    parents?.forEach((parent, rank) => parent >= 0 && expect(points[rank].y).toBeGreaterThan(points[parent].y));
  });

  it('of a ring is a circle, of groups a ring of circles', () => {
    expect(treeParents(scheduleOf('all_reduce', 'ring', 4))).toBeNull();
    expect(firstGroups(scheduleOf('all_reduce', 'ring', 4))).toEqual([[0, 1, 2, 3]]);
    expect(firstGroups(scheduleOf('all_reduce', 'hierarchical', 4))).toEqual([[0, 1], [2, 3]]);
    expect(placesOf(scheduleOf('all_reduce', 'hierarchical', 4), null).hulls.length).toBe(2);
  });

  it.each([['all_reduce', 'ring'], ['all_reduce', 'tree'], ['all_reduce', 'hierarchical'], ['all_to_all', 'direct'], ['gather', 'binomial']])(
    'of %s %s keeps its ranks apart and inside',
    (collective, name) => {
      const { points, radius } = placesOf(scheduleOf(collective, name, 4), null, 1.3);
      points.forEach((a, i) => {
        expect(Math.abs(a.x) + radius).toBeLessThanOrEqual(1.001);
        for (const b of points.slice(i + 1)) expect(Math.hypot(a.x - b.x, a.y - b.y)).toBeGreaterThan(2 * radius);
      });
    },
  );

  it('with one switch has it in the middle, with several above the ranks', () => {
    const schedule = scheduleOf('all_reduce', 'ring', 4);
    const cluster = { name: '', nodes: ['a', 's', 'b', 'c', 'd'], rank_node: [0, 2, 3, 4], rank_host: [0, 1, 2, 3], links: { src: [0, 2, 3, 4], dst: [1, 1, 1, 1], utilisation: null }, routes: { src: [], dst: [], links: [] } };
    const places = placesOf(schedule, cluster);
    expect(places.points[places.ofNode[1]]).toEqual({ x: 0, y: 0 });
    const two = { ...cluster, nodes: [...cluster.nodes, 'top'], links: { src: [0, 2, 3, 4, 1], dst: [1, 1, 1, 1, 5], utilisation: null } };
    const levels = placesOf(schedule, two);
    expect(levels.kind).toBe('levels');
    const y = (node: number) => levels.points[levels.ofNode[node]].y;
    expect(y(5)).toBeLessThan(y(1));
    expect(y(1)).toBeLessThan(y(0));
  });

  it('joins those who talk, unless nearly everyone does', () => {
    expect(skeleton(scheduleOf('all_reduce', 'ring', 4))).toEqual([[0, 1], [1, 2], [2, 3], [0, 3]]);
    expect(skeleton(scheduleOf('all_reduce', 'tree', 5))?.length).toBe(4);
  });
});

describe('text on a chunk’s colour', () => {
  const luminance = (colour: string) => {
    const [r, g, b] = [1, 3, 5].map((i) => Number.parseInt(colour.slice(i, i + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };

  it.each([false, true])('has a contrast of 4.5 at least (dark: %s)', (dark) => {
    for (const colour of themeOf(dark).chunks) {
      const [a, b] = [luminance(colour), luminance(textOn(colour))].sort((x, y) => y - x);
      expect((a + 0.05) / (b + 0.05), colour).toBeGreaterThanOrEqual(4.5);
    }
  });
});
