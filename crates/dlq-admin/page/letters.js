// Dead letters: finding them, and choosing what is to be done with them.

import { get, query } from './api.js';
import { ask } from './act.js';
import { announce, cell, field, h, pill, say, select, table } from './dom.js';
import { ago, bytes, local, many, number, visible } from './format.js';

const PAGE = 50;
const MESSAGE_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const TIMES = [['', 'any time'], ['15m', 'the last 15 min'], ['1h', 'the last hour'], ['24h', 'the last 24 hours'], ['7d', 'the last 7 days'], ['between', 'between …']];
/** What the bridge itself gives up for, and what brokers say most; any other can be typed. */
const REASONS = [
  'not_authorized', 'payload_format_invalid', 'topic_name_invalid', 'quota_exceeded', 'packet_too_large', 'implementation_specific_error',
  'unspecified_error', 'topic_invalid', 'retain_unavailable', 'suspected_refusal', 'expired', 'processor_failed', 'retries_exhausted',
];
const COLUMNS = [['Select', 'unseen'], ['Topic'], ['Reason'], ['Binding'], ['Given up'], ['Attempts', 'num'], ['Size', 'num']];

/** Where one comes back to from a single one. */
let latest = '#/dead-letters';
export const latestList = () => latest;

export function letters(hash) {
  latest = location.hash;
  const wanted = Object.fromEntries(new URLSearchParams(hash ?? ''));
  const form = filterForm(wanted);
  const list = h('div', { class: 'loading', 'aria-busy': 'true' }, 'Asking the bridge …');
  const count = h('p', { class: 'found', 'aria-live': 'polite' });
  const whole = h('button', { type: 'button', class: 'link', hidden: true, click: () => countAll() }, 'Count them all');
  const newer = h('button', { type: 'button', class: 'link', hidden: true, click: () => again() }, 'Others have come or gone: look again');
  const chosen = new Map();
  const tools = toolbar();
  const here = { cursor: undefined, before: [], page: undefined, asked: undefined, all: undefined };
  const root = h('section', {}, h('h1', {}, 'Dead letters'), form, h('div', { class: 'list-head' }, count, whole, newer, tools.root), list, tools.paging);

  async function load(cursor) {
    list.setAttribute('aria-busy', 'true');
    try {
      // By the clock of the bridge: the one here may be wrong.
      const { now, dead_letters: known } = await get('/api/v1/bridge');
      const asked = here.asked ?? filterOf(wanted, now);
      const page = await get(`/api/v1/dead-letters${query({ ...asked, limit: PAGE, cursor })}`);
      Object.assign(here, { cursor, page, asked, known, until: asked.until ?? now });
      newer.hidden = true;
      chosen.clear();
      display(page);
    } catch (problem) {
      if (problem.status === 401) return;
      here.refused = problem.status === 422;
      list.className = '';
      list.replaceChildren(h('p', { class: 'notice bad', role: 'alert' }, problem.field ? `${problem.field}: ${problem.detail}` : problem.message));
      say(count, '');
      whole.hidden = true;
      tools.root.hidden = true;
    } finally {
      list.removeAttribute('aria-busy');
    }
  }

  /** A topic is looked for only for a moment where a page is asked for. */
  async function countAll() {
    const { page } = here;
    whole.disabled = true;
    say(count, 'Counting …');
    try {
      const total = await get(`/api/v1/dead-letters/total${query(here.asked)}`, { within: 30 });
      if (here.page !== page) return;
      Object.assign(page, total);
      tools.show(page);
    } catch (problem) {
      if (problem.status !== 401) announce(problem.message);
    } finally {
      whole.disabled = false;
      if (here.page === page) sayTotal(page);
    }
  }

  function sayTotal(page) {
    const narrowed = Object.keys(here.asked).length > 0;
    whole.hidden = page.total_is_exact;
    say(count, `${page.total_is_exact ? '' : 'at least '}${many(page.total, 'dead letter')}${narrowed ? ' found' : ''}`);
  }

  function display(page) {
    const narrowed = Object.keys(here.asked).length > 0;
    list.className = '';
    sayTotal(page);
    list.replaceChildren(...(page.items.length > 0 ? [rows(page)] : [nothing(page, narrowed)]));
    if (page.unreadable.length > 0) {
      list.prepend(h('p', { class: 'notice bad' }, `${many(page.unreadable.length, 'entry', 'entries')} cannot be read, because the disk lost them: ${page.unreadable.join(', ')}. They can be deleted.`));
      for (const id of page.unreadable) list.firstChild.append(' ', h('button', { type: 'button', class: 'small', click: () => act('delete', { ids: [id] }) }, `Delete ${id}`));
    }
    tools.show(page);
  }

  function rows(page) {
    const all = h('input', { type: 'checkbox', 'aria-label': 'Select all on this page', change: () => {
      for (const box of body.querySelectorAll('input')) if (box.checked !== all.checked) box.click();
    } });
    const body = h('tbody', {}, page.items.map((letter) => row(letter)));
    const element = table('Dead letters, the newest first', COLUMNS, body);
    element.querySelector('th').replaceChildren(all);
    here.all = all;
    return element;
  }

  function row(letter) {
    const box = h('input', { type: 'checkbox', 'aria-label': `Select ${letter.id}`, change: () => {
      if (box.checked) chosen.set(letter.id, letter);
      else chosen.delete(letter.id);
      box.closest('tr').classList.toggle('chosen', box.checked);
      tools.show(here.page);
    } });
    const again = letter.cause && h('span', { class: 'sub' }, `redriven ${many(letter.cause.redrives, 'time')} before`);
    return h('tr', { 'data-id': letter.id },
      h('td', { class: 'box' }, box),
      h('th', { scope: 'row', class: 'topic' }, h('a', { href: `#/dead-letters/${encodeURIComponent(letter.id)}` }, visible(letter.topic)), again),
      cell('Reason', '', pill(letter.code === undefined ? 'calm' : 'bad', letter.reason),
        letter.reason_string && h('span', { class: 'sub words' }, `“${visible(letter.reason_string)}”`)),
      cell('Binding', '', `${letter.route}/${letter.binding}`, !letter.configured && h('span', { class: 'sub warn' }, 'no longer configured')),
      cell('Given up', 'when', h('time', { datetime: letter.last_refusal, title: `${letter.last_refusal} (UTC)` }, local(letter.last_refusal)), ' ', h('span', { class: 'muted' }, ago(letter.last_refusal))),
      cell('Attempts', 'num', number(letter.attempts)),
      cell('Size', 'num', bytes(letter.payload_bytes)));
  }

  function nothing(page, narrowed) {
    if (page.next) return h('p', { class: 'empty' }, 'Nothing so far; the search is not at its end. ', h('button', { type: 'button', click: () => step(1) }, 'Search on'));
    if (!narrowed) return h('p', { class: 'empty' }, h('b', {}, 'There are no dead letters.'), ' Every message that has come was delivered, waits, or went by a policy of the configuration.');
    return h('p', { class: 'empty' }, h('b', {}, 'No dead letter matches.'), ' ', h('a', { href: '#/dead-letters' }, 'Show all of them'));
  }

  function toolbar() {
    const about = h('span', { class: 'muted' });
    const redrive = h('button', { type: 'button', click: () => act('redrive') });
    const remove = h('button', { type: 'button', class: 'danger', click: () => act('delete') });
    const older = h('button', { type: 'button', click: () => step(1) }, 'Older →');
    const younger = h('button', { type: 'button', click: () => step(-1) }, '← Newer');
    const place = h('span', { class: 'muted' });
    const show = (page) => {
      const some = chosen.size;
      tools.root.hidden = page.total === 0 && page.items.length === 0;
      say(about, some > 0 ? `${number(some)} selected` : '');
      const which = some > 0 ? ' selected' : page.total_is_exact ? ` all ${number(page.total)}` : ' all that match';
      say(redrive, `Redrive${which}`);
      say(remove, `Delete${which}`);
      // What is about everything does not put itself forward.
      redrive.classList.toggle('main', some > 0);
      if (here.all) {
        here.all.checked = some > 0 && some === page.items.length;
        here.all.indeterminate = some > 0 && some < page.items.length;
      }
      tools.paging.hidden = here.before.length === 0 && !page.next;
      younger.disabled = here.before.length === 0;
      older.disabled = !page.next;
      say(place, `page ${here.before.length + 1}`);
    };
    return {
      root: h('div', { class: 'tools', hidden: true }, about, redrive, remove),
      paging: h('nav', { class: 'paging', 'aria-label': 'Pages', hidden: true }, younger, place, older),
      show,
    };
  }

  /** The newest, with ages that count from now. */
  function again() {
    Object.assign(here, { asked: undefined, before: [] });
    return load();
  }

  async function step(by) {
    let cursor = here.page.next;
    if (by > 0) here.before.push(here.cursor);
    else cursor = here.before.pop();
    await load(cursor);
    announce(`Page ${here.before.length + 1}`);
    root.querySelector('h1').focus();
  }

  /** What is selected, or else all that the filter took when the list was read: what has come
      since then is not meant. */
  async function act(what, selection) {
    const meant = selection ?? (chosen.size > 0
      ? { ids: [...chosen.keys()], letters: [...chosen.values()] }
      : { filter: { ...here.asked, until: here.until }, total: here.page.total, exact: here.page.total_is_exact, letters: here.page.items });
    if (await ask(what, meant)) await again();
  }

  /** Nothing moves under the hand that is about to choose: a change is only told. */
  async function refresh(bridge) {
    if (here.refused) return;
    if (!here.page) return load();
    if (bridge.dead_letters === here.known) return;
    here.known = bridge.dead_letters;
    const { total } = await get(`/api/v1/dead-letters${query({ ...here.asked, limit: 1 })}`);
    if (total !== here.page.total) newer.hidden = false;
  }
  return { root, title: 'Dead letters', refresh };
}

/** The filter of the API. An age becomes an instant once, so that it means the same later on. */
function filterOf({ search = '', route, binding, reason, when = '', since, until }, now) {
  const text = search.trim();
  const filter = { route, binding, reason };
  if (MESSAGE_ID.test(text)) filter.message_id = text.toLowerCase();
  else if (text !== '') filter.topic = text;
  const utc = (local) => local && new Date(local).toISOString();
  if (when === 'between') Object.assign(filter, { since: utc(since), until: utc(until) });
  else if (when !== '') filter.since = new Date(new Date(now) - age(when)).toISOString();
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value));
}

const age = (text) => Number.parseInt(text, 10) * { m: 60_000, h: 3_600_000, d: 86_400_000 }[text.at(-1)];

function filterForm(wanted) {
  const route = h('input', { name: 'route', list: 'routes', value: wanted.route ?? '', size: 10 });
  const binding = h('input', { name: 'binding', list: 'bindings', value: wanted.binding ?? '', size: 10 });
  const between = h('div', { class: 'between', hidden: wanted.when !== 'between' },
    field('From', h('input', { type: 'datetime-local', name: 'since', step: 1, value: wanted.since ?? '' })),
    field('Until', h('input', { type: 'datetime-local', name: 'until', step: 1, value: wanted.until ?? '' })));
  const when = select('when', TIMES, wanted.when ?? '', { change: () => { between.hidden = when.value !== 'between'; } });
  const submit = (event) => {
    event.preventDefault();
    const set = [...new FormData(event.target)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value !== '');
    const kept = set.filter(([name]) => when.value === 'between' || (name !== 'since' && name !== 'until'));
    const text = new URLSearchParams(kept).toString();
    const next = text === '' ? '#/dead-letters' : `#/dead-letters?${text}`;
    // The same words again are a wish to look again.
    if (next === location.hash) dispatchEvent(new Event('hashchange'));
    else location.hash = next;
  };
  const form = h('form', { class: 'filters', role: 'search', 'aria-label': 'Dead letters', submit },
    h('div', { class: 'wide' }, field('Topic or message id', h('input', { type: 'search', name: 'search', value: wanted.search ?? '', placeholder: 'sensors/+/temperature, or the id of a message', autocapitalize: 'none', spellcheck: 'false' }))),
    field('Route', route), field('Binding', binding),
    field('Reason', h('input', { name: 'reason', list: 'reasons', value: wanted.reason ?? '', size: 16 })),
    field('Given up', when), between,
    h('div', { class: 'go' }, h('button', { class: 'main' }, 'Search'), Object.keys(wanted).length > 0 && h('a', { href: '#/dead-letters' }, 'Clear')),
    h('datalist', { id: 'reasons' }, REASONS.map((reason) => h('option', { value: reason }))),
    h('datalist', { id: 'routes' }), h('datalist', { id: 'bindings' }));
  suggest(form);
  return form;
}

/** What is configured is offered; what is not any more can be typed. */
async function suggest(form) {
  try {
    const { items } = await get('/api/v1/routes');
    const options = (names) => [...new Set(names)].map((name) => h('option', { value: name }));
    form.querySelector('#routes').replaceChildren(...options(items.map((route) => route.name)));
    form.querySelector('#bindings').replaceChildren(...options(items.flatMap((route) => route.bindings)));
  } catch {
    // The view itself tells that the bridge does not answer; without suggestions one can type.
  }
}
