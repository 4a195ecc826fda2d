/** The lab's page: the form's state is the address, and what is shown follows from it. */

const form = document.getElementById('form');
const field = (name) => form.elements.namedItem(name);
const at = (selector) => document.querySelector(selector);
const make = (tag, text, attributes = {}) => Object.assign(document.createElement(tag), { textContent: text }, attributes);

let choices;
let player;
let asking = new AbortController();

/** Fetch JSON; throws an Error with the library's own sentence. */
async function ask(path, signal) {
  const response = await fetch(path, { signal });
  const answer = await response.json();
  if (answer.error) throw Object.assign(new Error(answer.error.message), { kind: answer.error.type });
  return answer;
}

const collectiveOf = (name) => choices.collectives.find((one) => one.name === name);

/** The form as parameters: only what differs from the start. */
function parameters() {
  const found = new URLSearchParams();
  for (const [name, usual] of Object.entries(choices.defaults)) {
    const value = field(name).value.trim();
    const matters = name !== 'root' || collectiveOf(field('collective').value)?.rooted;
    if (value && value !== usual && matters) found.set(name, value);
  }
  return found;
}

/** Put the address into the form. */
function readAddress() {
  const given = new URLSearchParams(location.search);
  for (const [name, usual] of Object.entries(choices.defaults)) field(name).value = given.get(name) ?? usual;
  offer();
}

/** What there is to choose from, for the collective that is chosen. */
function offer() {
  const chosen = collectiveOf(field('collective').value);
  at('#root').hidden = !chosen?.rooted;
  at('#algorithms').replaceChildren(...(chosen?.algorithms ?? []).map(({ name }) => new Option(name)));
  const name = field('algorithm').value.split(':')[0];
  const known = chosen?.algorithms.find((one) => one.name === name);
  const options = known?.options.length ? ` Options: ${known.options.map((option) => `${name}:${option}=…`).join(', ')}` : '';
  at('#about').textContent = known ? `${known.summary} Rounds: ${known.rounds}.${options}` : '';
}

function row(cells, heading = cells[0]) {
  const line = document.createElement('tr');
  const first = make('th', '', { scope: 'row' });
  first.append(heading);
  line.append(first, ...cells.slice(1).map((cell) => make('td', cell)));
  return line;
}

function showPlayer(answer) {
  const data = JSON.stringify(answer.player).replaceAll('<', '\\u003c');
  const [head, rest] = player.split('<script type="application/json" id="farandole-data">');
  at('#player iframe').srcdoc = `${head}<script type="application/json" id="farandole-data">${data}${rest.slice(rest.indexOf('</script>'))}`;
  at('#player-title').textContent = `${answer.title}, ${answer.where}`;
  at('#player').hidden = false;
}

function showNumbers({ numbers, links, path, note }) {
  const [values, busiest] = document.querySelectorAll('#numbers tbody');
  values.replaceChildren(...numbers.map((cells) => row(cells)));
  busiest.replaceChildren(...links.map((cells) => row(cells)));
  at('#numbers ol').replaceChildren(...path.map((sentence) => make('li', sentence)));
  at('#numbers .note').textContent = note;
  at('#numbers').hidden = false;
}

function showComparison({ plot, sizes, rows, best, advice, left_out }) {
  at('#advice div').replaceChildren(...advice.map((sentence) => make('p', sentence)));
  at('#advice').hidden = false;
  const image = at('#compare img');
  if (plot) image.src = `data:image/svg+xml,${encodeURIComponent(plot)}`;
  else image.removeAttribute('src');
  image.alt = plot ? 'Time over size for every algorithm; the table below has the same numbers.' : '';
  const heads = document.createElement('tr');
  heads.append(...['algorithm', ...sizes].map((text) => make('th', text, { scope: 'col' })));
  at('#compare thead').replaceChildren(heads);
  at('#compare tbody').replaceChildren(
    ...rows.map((cells) => {
      const pick = make('button', cells[0], { type: 'button', title: `Show ${cells[0]}` });
      pick.addEventListener('click', () => {
        field('algorithm').value = cells[0];
        go(true);
      });
      const line = row(cells, pick);
      best.forEach((name, i) => name === cells[0] && line.children[i + 1].classList.add('best'));
      if (cells[0] === field('algorithm').value.trim()) line.setAttribute('aria-current', 'true');
      return line;
    }),
  );
  at('#compare ul').replaceChildren(...left_out.map((sentence) => make('li', sentence)));
  at('#compare').hidden = false;
}

function fail(error) {
  if (error.name === 'AbortError') return;
  at('#error').textContent = error.kind ? error.message : `The lab does not answer: ${error.message}`;
  at('#status').textContent = '';
}

/** Show what the form says; `isStep` makes it a step in the history. */
async function go(isStep) {
  offer();
  const query = parameters();
  const address = query.size ? `?${query}` : location.pathname;
  if (isStep && address !== (location.search || location.pathname)) history.pushState(null, '', address);
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  at('#error').textContent = '';
  at('#status').textContent = 'Simulating …';
  document.body.setAttribute('aria-busy', 'true');
  try {
    const answer = await ask(`/api/show?${query}`, signal);
    showPlayer(answer);
    showNumbers(answer);
    at('#status').textContent = 'Comparing all algorithms …';
    showComparison(await ask(`/api/compare?${query}`, signal));
    at('#status').textContent = '';
  } catch (error) {
    if (!signal.aborted) for (const part of ['#advice', '#player', '#numbers', '#compare']) at(part).hidden = true;
    fail(error);
  } finally {
    if (!signal.aborted) document.body.removeAttribute('aria-busy');
  }
}

field('collective').addEventListener('change', () => {
  const chosen = collectiveOf(field('collective').value);
  const name = field('algorithm').value.split(':')[0];
  if (!chosen.algorithms.some((one) => one.name === name)) field('algorithm').value = chosen.algorithms[0].name;
});
form.addEventListener('change', () => go(true));
form.addEventListener('submit', (event) => {
  event.preventDefault();
  go(true);
});
addEventListener('popstate', () => {
  readAddress();
  go(false);
});

try {
  [choices, player] = await Promise.all([ask('/api/choices'), fetch('/player.html').then((response) => response.text())]);
  field('collective').append(...choices.collectives.map(({ name }) => new Option(name)));
  at('#clusters').append(...['hosts:2x4', 'switch:8@100Gbit/s,2us', 'ring:8@50GB/s', 'torus:4x4', 'dgx-h100:4', 'ethernet:8@25Gbit/s'].map((spec) => new Option(spec)));
  at('[name=cluster]').title = choices.clusters.join('\n');
  readAddress();
  await go(false);
} catch (error) {
  fail(error);
}
