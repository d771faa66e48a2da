// Which view is shown, who is logged in, and whether the bridge answers.

import { get, post, remove, whenEnded } from './api.js';
import { announce, field, h, pill, say } from './dom.js';
import { duration, number, setClock } from './format.js';
import { inject } from './inject.js';
import { jobs } from './jobs.js';
import { letter } from './letter.js';
import { letters } from './letters.js';
import { overview } from './overview.js';

/** How often what is shown is asked for again, while somebody looks. */
const PACE = 2000;

const VIEWS = [
  [/^#\/?$/, 'overview', overview],
  [/^#\/dead-letters(?:\?(.*))?$/, 'dead-letters', letters],
  [/^#\/dead-letters\/([^/?]+)$/, 'dead-letters', letter],
  [/^#\/jobs$/, 'jobs', jobs],
  [/^#\/test-message(?:\?(.*))?$/, 'test-message', inject],
];

const at = (id) => document.getElementById(id);
const content = at('content');
const banner = at('banner');
/** The view on show: `{ root, title, refresh? }`. */
let shown;
let loggedIn = false;
let timer;
/** How often was asked: what an earlier time still waits for is of no interest any more. */
let turns = 0;
let lastAnswer = 0;

async function show() {
  const hash = location.hash || '#/';
  const [found, name, make] = VIEWS.map(([pattern, ...rest]) => [pattern.exec(hash), ...rest])
    .find(([match]) => match) ?? [null, 'nowhere', nowhere];
  shown?.root.dispatchEvent(new Event('left'));
  for (const link of document.querySelectorAll('#nav a')) {
    if (link.dataset.view === name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  put(make(found?.[1]));
  await refresh();
}

function put(view) {
  shown = view;
  document.title = `${view.title} – ${at('bridge-id').textContent}`;
  content.replaceChildren(view.root);
  const heading = content.querySelector('h1');
  heading?.setAttribute('tabindex', '-1');
  heading?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function nowhere() {
  const root = h('section', { class: 'narrow' }, h('h1', {}, 'There is nothing here'),
    h('p', {}, h('a', { href: '#/' }, 'To the overview')));
  return { root, title: 'Nothing here' };
}

/** Asks again for what is shown, and comes back while somebody looks. */
async function refresh() {
  clearTimeout(timer);
  if (!loggedIn) return;
  turns += 1;
  const turn = turns;
  const isOver = () => !loggedIn || turn !== turns;
  if (document.visibilityState === 'visible') {
    const view = shown;
    try {
      const bridge = await get('/api/v1/bridge');
      setClock(bridge.now);
      if (view === shown) await view.refresh?.(bridge);
      if (isOver()) return;
      lastAnswer = Date.now();
      head(bridge);
      trouble('');
    } catch (problem) {
      if (isOver()) return;
      failed(problem);
    }
  }
  timer = setTimeout(refresh, PACE);
}

function failed(problem) {
  document.body.classList.toggle('stale', problem.status === 0);
  if (problem.status === 0) {
    const since = lastAnswer === 0 ? '' : ` What you see is ${duration((Date.now() - lastAnswer) / 1000)} old.`;
    trouble(`The bridge does not answer.${since} Asking again every 2 s.`);
  } else {
    trouble(problem.message);
  }
}

function trouble(text) {
  if (text === '') document.body.classList.remove('stale');
  at('pulse').classList.toggle('off', text !== '');
  say(at('pulse'), text === '' ? 'live' : 'no answer');
  say(banner, text);
  banner.hidden = text === '';
}

function head(bridge) {
  say(at('bridge-id'), bridge.id);
  say(at('bridge-version'), bridge.version);
  if (shown) document.title = `${shown.title} – ${bridge.id}`;
  const count = at('nav-dead');
  say(count, number(bridge.dead_letters));
  count.hidden = bridge.dead_letters === 0;
  const role = bridge.role;
  if (role && at('bridge-role').textContent !== role) {
    at('bridge-role').replaceChildren(pill(role === 'active' ? 'good' : 'calm', role));
  }
}

function enter() {
  loggedIn = true;
  at('nav').hidden = false;
  at('log-out').hidden = false;
  return show();
}

/** The login; `why` says what has happened, if something has. */
function leave(why) {
  loggedIn = false;
  clearTimeout(timer);
  for (const dialog of document.querySelectorAll('dialog')) dialog.remove();
  at('nav').hidden = true;
  at('log-out').hidden = true;
  trouble('');
  say(at('pulse'), '');
  put(login(why));
  content.querySelector('input').focus();
}

function login(why) {
  const token = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true, spellcheck: 'false', 'aria-describedby': 'login-said' });
  const button = h('button', { class: 'main' }, 'Log in');
  const said = h('p', { class: 'notice', id: 'login-said', role: 'alert', hidden: !why }, why ?? '');
  const tell = (text) => {
    said.className = 'notice bad';
    said.hidden = false;
    say(said, text);
  };
  const submit = async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    try {
      await post('/api/v1/session', { token: token.value }, { login: true });
      token.value = '';
      await enter();
    } catch (problem) {
      token.select();
      token.focus();
      if (problem.status === 429) return waitOut(problem.retryAfter ?? 2, button, tell);
      tell(problem.status === 401 ? 'That is not the token of this bridge.' : problem.message);
    }
    button.disabled = false;
  };
  const root = h('section', { class: 'login' },
    h('h1', {}, 'Log in'),
    h('p', { class: 'muted' }, 'with the admin token of this bridge.'),
    said,
    h('form', { method: 'post', submit },
      field('Admin token', token, 'It is sent once, for a session that ends after an hour without use. This page keeps no copy of it.'),
      button));
  return { root, title: 'Log in' };
}

function waitOut(seconds, button, tell) {
  const end = Date.now() + seconds * 1000;
  const tick = () => {
    const left = Math.ceil((end - Date.now()) / 1000);
    if (left <= 0) {
      button.disabled = false;
      say(button, 'Log in');
      return;
    }
    say(button, `Log in (in ${left} s)`);
    setTimeout(tick, 250);
  };
  tell('Too many wrong tokens from here: for a moment none is looked at, not even the right one.');
  tick();
}

at('log-out').addEventListener('click', async () => {
  try {
    await remove('/api/v1/session', { login: true });
  } catch (problem) {
    // Without a session there is none to end.
    if (problem.status !== 401) return failed(problem);
  }
  leave('You have logged out.');
  announce('You have logged out.');
});
whenEnded(() => loggedIn && leave('Your session has ended. Log in again, and you are back where you were.'));
addEventListener('hashchange', () => loggedIn && show());
document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && refresh());
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  content.focus();
});

async function begin() {
  try {
    await get('/api/v1/session', { login: true });
  } catch (problem) {
    if (problem.status === 401) return leave();
    failed(problem);
    timer = setTimeout(begin, PACE);
    return;
  }
  await enter();
}

begin();
