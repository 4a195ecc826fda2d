/** Builds the player into one HTML file that loads nothing: script and style are written into the page. */
import { svelte } from '@sveltejs/vite-plugin-svelte';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

function oneFile(): Plugin {
  return {
    name: 'one-file',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const page = bundle['index.html'];
      if (!page || page.type !== 'asset') throw new Error('the build has no index.html');
      let html = String(page.source);
      for (const [name, part] of Object.entries(bundle)) {
        if (part === page) continue;
        const path = name.replaceAll('.', '\\.');
        if (part.type === 'chunk') {
          const code = part.code.trim().replaceAll('</script', '<\\/script');
          html = html.replace(new RegExp(`<script[^>]*src="[^"]*${path}"[^>]*></script>\\s*`), '');
          html = html.replace('</body>', () => `<script type="module">${code}</script>\n</body>`);
        } else {
          const style = String(part.source).trim();
          html = html.replace(new RegExp(`<link[^>]*href="[^"]*${path}"[^>]*>`), () => `<style>${style}</style>`);
        }
        delete bundle[name];
      }
      page.source = html;
    },
  };
}

export default defineConfig({
  plugins: [svelte(), oneFile()],
  build: {
    outDir: 'dist',
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    target: 'es2022',
  },
  test: { include: ['tests/**/*.test.ts'] },
});
