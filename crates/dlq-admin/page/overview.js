// How it goes: what needs a person, every binding with its rates, every session with its links.

import { get, post } from './api.js';
import { announce, cell, h, keyed, pill, say, svg, table } from './dom.js';
import { bytes, duration, many, number, rate, visible, words } from './format.js';

/** So many points of a rate are drawn: two minutes. */
const POINTS = 60;

const STATES = { live: 'good', replaying: 'busy', recalling: 'busy', blocked: 'bad', link_down: 'bad', paused: 'warn' };
const LINKS = { down: 'bad', connected: 'good', subscribed: 'good' };

const COLUMNS = [
  ['Binding'], ['State'], ['Delivered, 2 min', 'wide-only'], ['In/s', 'num'], ['Out/s', 'num'], ['Queue', 'num'], ['Bytes', 'num'],
  ['Oldest', 'num'], ['Deferred', 'num'], ['Dead letters', 'num'], ['Actions', 'unseen'],
];

/** Whether this instance only stands by: then a link that is down is no trouble. */
let standby = false;

/** What was delivered a second, by binding, for as long as the page is open. */
const drawn = new Map();

export function overview() {
  const said = h('p', { class: 'notice bad', role: 'alert', hidden: true });
  const tiles = h('dl', { class: 'tiles' });
  const attention = h('ul', { class: 'attention', 'aria-label': 'What needs attention' });
  const bindings = h('div', { class: 'loading', 'aria-busy': 'true' }, 'Asking the bridge …');
  const sessions = h('div', {});
  const root = h('section', {}, h('h1', {}, 'Overview'), said, tiles, attention,
    h('h2', {}, 'Routes and their bindings'), bindings, h('h2', {}, 'Sessions'), sessions);

  const refresh = async (bridge) => {
    const asked = ['routes', 'bindings', 'sessions'].map((what) => get(`/api/v1/${what}`));
    const [routes, state, links] = await Promise.all(asked);
    standby = bridge.role === 'standby';
    note(state.items);
    summary(tiles, bridge, state.items);
    needs(attention, routes.items, state.items, links.items);
    if (bindings.hasAttribute('aria-busy')) {
      bindings.removeAttribute('aria-busy');
      bindings.className = '';
      bindings.replaceChildren(table('Bindings by route', COLUMNS));
      sessions.replaceChildren(table('Sessions', [['Session'], ['Broker'], ['Reads as'], ['Writes as'], ['Mode']], h('tbody', {})));
    }
    showRoutes(bindings.querySelector('table'), routes.items, state.items, (key, pause) => steer(key, pause, said, refresh));
    keyed(sessions.querySelector('tbody'), links.items, (session) => session.name, makeSession, showSession);
  };
  return { root, title: 'Overview', refresh };
}

async function steer(binding, pause, said, refresh) {
  const name = nameOf(binding);
  try {
    await post(`/api/v1/bindings/${binding.route}/${binding.binding}/${pause ? 'pause' : 'resume'}`);
    said.hidden = true;
    announce(pause ? `${name} is paused: messages queue.` : `${name} goes on.`);
    await refresh(await get('/api/v1/bridge'));
  } catch (problem) {
    say(said, `${name}: ${problem.message}`);
    said.hidden = false;
  }
}

function note(bindings) {
  for (const binding of bindings) {
    const key = nameOf(binding);
    const points = drawn.get(key) ?? [];
    points.push(binding.rates?.delivered ?? 0);
    drawn.set(key, points.slice(-POINTS));
  }
}

function summary(tiles, bridge, bindings) {
  const sum = (pick) => bindings.reduce((total, binding) => total + (pick(binding) ?? 0), 0);
  const known = bindings.some((binding) => binding.rates);
  const items = [
    ['Delivered / s', known ? rate(sum((b) => b.rates?.delivered)) : '–'],
    ['Queued', number(bridge.queued), bytes(sum((b) => b.queue.bytes))],
    ['Deferred', number(bridge.deferred), '', bridge.deferred > 0 && 'warn'],
    ['Dead letters', number(bridge.dead_letters), '', bridge.dead_letters > 0 && 'warn'],
    ['Bindings blocked', `${number(bridge.blocked)}`, `of ${number(bridge.bindings)}`, bridge.blocked > 0 && 'bad'],
    ['Sessions down', `${number(bridge.sessions_down)}`, `of ${number(bridge.sessions)}`, bridge.sessions_down > 0 && 'bad'],
  ];
  keyed(tiles, items, ([title]) => title,
    ([title]) => h('div', {}, h('dt', {}, title), h('dd', {}, h('b', {}), h('span', {}))),
    (tile, [, value, beside, kind]) => {
      tile.className = kind || '';
      say(tile.querySelector('b'), value);
      say(tile.querySelector('span'), beside ?? '');
    });
}

/** What a person on call wants to know first, the worst first. */
function needs(list, routes, bindings, sessions) {
  const bad = [];
  const warn = [];
  const calm = [];
  if (standby) {
    calm.push({ key: 'standby', kind: 'calm', mark: '‖', name: 'This instance stands by:', text: 'another one holds the lease and has the exclusive sessions. Look there for what they carry.' });
  }
  const waiting = (binding) => `${many(binding.queue.entries, 'message')} in the queue`;
  const down = new Set();
  for (const session of sessions) {
    if (session.source?.state !== 'down' && session.destination?.state !== 'down') continue;
    down.add(session.name);
    const behind = bindings.filter((binding) => binding.session === session.name && session.destination?.state === 'down' && binding.queue.entries > 0);
    const what = behind.map((binding) => `${nameOf(binding)} has ${waiting(binding)}`).join(', ');
    bad.push({ key: `s ${session.name}`, name: `Session ${session.name}`, text: `is not connected to ${session.brokers.map(visible).join(', ')}${what && `; ${what}`}.` });
  }
  for (const binding of bindings) {
    const { entries } = binding.dead_letters;
    if (binding.why && !(binding.state === 'link_down' && down.has(binding.session))) {
      bad.push({ key: `b ${nameOf(binding)}`, name: nameOf(binding), text: `${visible(binding.why)}; ${waiting(binding)}.` });
    }
    if (isPaused(binding)) warn.push({ key: `p ${nameOf(binding)}`, name: nameOf(binding), text: `is paused by hand; ${waiting(binding)}.` });
    if (binding.deferred.entries > 0) {
      warn.push({ key: `d ${nameOf(binding)}`, name: nameOf(binding), text: `has ${many(binding.deferred.entries, 'deferred message')}: not authorized, and offered again for a while.` });
    }
    if (entries > 0) warn.push({ key: `l ${nameOf(binding)}`, name: nameOf(binding), text: `has ${many(entries, 'dead letter')}.`, href: lettersOf(binding), link: entries === 1 ? 'Look at it' : 'Look at them' });
  }
  for (const route of routes) {
    if (route.refused_topics.length > 0) bad.push({ key: `r ${route.name}`, name: `Route ${route.name}`, text: `has a broker that refuses the subscription to ${route.refused_topics.map(visible).join(', ')}.` });
  }
  const items = [...bad.map((item) => ({ ...item, kind: 'bad', mark: '✕' })), ...warn.map((item) => ({ ...item, kind: 'warn', mark: '!' })), ...calm];
  if (items.length === calm.length) items.push({ kind: 'good', mark: '✓', key: 'none', name: 'All is well.', text: 'Every session is connected and every binding moves.' });
  keyed(list, items, (item) => item.key,
    (item) => h('li', { class: item.kind }, h('span', { class: 'mark', 'aria-hidden': 'true' }, item.mark), h('span', {}, h('b', {}, item.name), ' ', h('span', {}), item.href && [' ', h('a', { href: item.href })])),
    (element, item) => {
      say(element.querySelector('b + span'), item.text);
      if (item.href) say(element.querySelector('a'), item.link);
    });
}

const nameOf = (binding) => `${binding.route}/${binding.binding}`;
const isPaused = (binding) => binding.paused === true || binding.state === 'paused';
const lettersOf = (binding) => `#/dead-letters?route=${binding.route}&binding=${binding.binding}`;

function showRoutes(element, routes, bindings, steerTo) {
  keyed(element, routes, (route) => route.name, makeRoute, (body, route) => {
    const own = bindings.filter((binding) => binding.route === route.name);
    keyed(body, own, (binding) => binding.binding, (binding) => makeBinding(binding, steerTo), showBinding);
  });
}

function makeRoute(route) {
  const takes = route.topics.flatMap((topic, place) => [place > 0 && ', ', h('code', {}, visible(topic))]);
  const about = h('span', { class: 'muted' }, ' takes ', takes, ` from ${route.session} · ${words(route.delivery)}`);
  return h('tbody', {}, h('tr', { class: 'group' },
    h('th', { scope: 'rowgroup', colspan: COLUMNS.length }, h('b', {}, route.name), about)));
}

function makeBinding(binding, steerTo) {
  const name = nameOf(binding);
  const button = h('button', { type: 'button', class: 'small', click: () => steerTo(binding, button.dataset.to === 'pause') });
  return h('tr', {},
    h('th', { scope: 'row' }, h('span', { class: 'strong' }, binding.binding), h('span', { class: 'sub' }, '→ ', binding.session, ' ', h('code', {}, visible(binding.topic)))),
    cell('State', 'state', h('span', {})),
    cell('Delivered, 2 min', 'wide-only', spark(name)),
    ...['In/s', 'Out/s', 'Queue', 'Bytes', 'Oldest', 'Deferred'].map((label) => cell(label, 'num')),
    cell('Dead letters', 'num', h('a', { href: lettersOf(binding) })),
    cell('Actions', 'acts', button));
}

function showBinding(row, binding) {
  const name = nameOf(binding);
  const [, state, line, ...rest] = row.children;
  if (state.dataset.is !== binding.state) {
    state.dataset.is = binding.state;
    state.replaceChildren(pill((!(standby && binding.state === 'link_down') && STATES[binding.state]) || 'calm', words(binding.state)));
  }
  state.title = visible(binding.why ?? '');
  draw(line.firstChild, name);
  const numbers = [
    rate(binding.rates?.received), rate(binding.rates?.delivered), number(binding.queue.entries), bytes(binding.queue.bytes),
    binding.queue.entries > 0 ? duration(binding.oldest_seconds) : '–', number(binding.deferred.entries),
  ];
  numbers.forEach((text, place) => {
    say(rest[place], text);
    rest[place].classList.toggle('nothing', text === '0' || text === '–' || text === '0 B');
  });
  rest[5].classList.toggle('warn', binding.deferred.entries > 0);
  const dead = rest[6].firstChild;
  if (dead.textContent !== number(binding.dead_letters.entries)) {
    say(dead, number(binding.dead_letters.entries));
    dead.setAttribute('aria-label', `${many(binding.dead_letters.entries, 'dead letter')} of ${name}`);
  }
  dead.className = binding.dead_letters.entries > 0 ? 'warn' : 'nothing';
  const button = rest[7].firstChild;
  const to = isPaused(binding) ? 'resume' : 'pause';
  button.dataset.to = to;
  say(button, to === 'pause' ? 'Pause' : 'Resume');
  button.setAttribute('aria-label', `${button.textContent} ${name}`);
}

function spark(name) {
  return svg('svg', { class: 'spark', viewBox: '0 0 120 24', width: 120, height: 24, role: 'img', 'aria-label': `Delivered per second of ${name}` },
    svg('path', { class: 'area' }), svg('path', { class: 'line' }));
}

function draw(element, name) {
  const points = drawn.get(name) ?? [];
  const most = Math.max(1, ...points);
  const step = 120 / (POINTS - 1);
  const from = 120 - (points.length - 1) * step;
  const places = points.map((value, place) => `${(from + place * step).toFixed(1)} ${(22 - (value / most) * 20).toFixed(1)}`);
  const line = places.length < 2 ? '' : `M${places.join('L')}`;
  const [area, stroke] = element.children;
  stroke.setAttribute('d', line);
  area.setAttribute('d', line && `${line}L120 24L${from.toFixed(1)} 24Z`);
}

function makeSession(session) {
  return h('tr', {},
    h('th', { scope: 'row' }, h('span', { class: 'strong' }, session.name)),
    cell('Broker', '', session.brokers.map((url) => h('code', { class: 'block' }, visible(url)))),
    cell('Reads as', ''), cell('Writes as', ''),
    cell('Mode', 'muted', `${session.mode} · MQTT ${session.protocol}`));
}

function showSession(row, session) {
  [session.source, session.destination].forEach((link, place) => {
    const td = row.children[2 + place];
    const is = link ? `${link.state} ${link.client_id}` : '';
    if (td.dataset.is === is) return;
    td.dataset.is = is;
    td.replaceChildren(...(link ? [pill(LINKS[link.state] ?? 'calm', link.state), ' ', h('code', {}, visible(link.client_id))] : [h('span', { class: 'nothing' }, '–')]));
  });
}
