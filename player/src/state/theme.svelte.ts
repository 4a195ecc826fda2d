/** Light or dark: as the system says, until someone chooses; the choice is remembered where the browser allows it. */

const KEY = 'farandole-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

function remembered(): 'light' | 'dark' | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : null;
  } catch {
    return null; // a sandboxed frame has no storage
  }
}

class Appearance {
  chosen = $state(remembered());
  systemDark = $state(system.matches);
  dark = $derived(this.chosen ? this.chosen === 'dark' : this.systemDark);

  constructor() {
    system.addEventListener('change', (event) => (this.systemDark = event.matches));
  }

  /** Change to the other one; one that is as the system says need not be remembered. */
  toggle(): void {
    const dark = !this.dark;
    this.chosen = dark === this.systemDark ? null : dark ? 'dark' : 'light';
    try {
      if (this.chosen) localStorage.setItem(KEY, this.chosen);
      else localStorage.removeItem(KEY);
    } catch {
      // not remembered, still in force
    }
  }
}

export const appearance = new Appearance();
