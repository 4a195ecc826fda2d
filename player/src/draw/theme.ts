/** Colours for what is drawn on a canvas; the same values as the style sheet's, so that both match. */

export interface Theme {
  dark: boolean;
  /** Chunk colours after Okabe and Ito, told apart with any colour vision; a chunk also has its number. */
  chunks: string[];
  ink: string;
  soft: string;
  faint: string;
  line: string;
  surface: string;
  cell: string;
  /** A segment with nothing in it. */
  slot: string;
  accent: string;
  danger: string;
}

const LIGHT: Theme = {
  dark: false,
  chunks: ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#b8a600', '#5b4bb5'],
  ink: '#1d2330',
  soft: '#596172',
  faint: '#c3c8d2',
  line: '#e1e4ea',
  surface: '#ffffff',
  cell: '#f3f4f7',
  slot: '#e3e6ec',
  accent: '#3b4cca',
  danger: '#c4221f',
};

const DARK: Theme = {
  dark: true,
  chunks: ['#4ba3dc', '#f0b030', '#2fc296', '#e39ac4', '#8fd0f5', '#f08248', '#e3d64a', '#a99cf5'],
  ink: '#eceff5',
  soft: '#a3abbb',
  faint: '#4a5163',
  line: '#2c3240',
  surface: '#191d27',
  cell: '#222733',
  slot: '#303747',
  accent: '#9aa8ff',
  danger: '#ff7d76',
};

export const themeOf = (dark: boolean): Theme => (dark ? DARK : LIGHT);

/** The colour of a chunk; colours come round again, its number does not. */
export const chunkColour = (theme: Theme, chunk: number): string => theme.chunks[chunk % theme.chunks.length];

/** Black or white, whichever reads better on a colour. */
export function textOn(colour: string): string {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const part = Number.parseInt(colour.slice(i, i + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#10131a' : '#ffffff';
}

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
