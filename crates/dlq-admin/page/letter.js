// One dead letter whole. That it was read is in the audit log of the bridge.

import { ask } from './act.js';
import { get } from './api.js';
import { announce, h, pill, say } from './dom.js';
import { ago, bytes, fromBase64, hex, local, many, number, visible, visibleLines } from './format.js';
import { latestList } from './letters.js';

/** A payload may be megabytes: so much of it is shown unasked. */
const SHOWN = 16 * 1024;

export function letter(escaped) {
  const id = decodeURIComponent(escaped);
  const body = h('div', { class: 'loading', 'aria-busy': 'true' }, 'Asking the bridge …');
  const title = h('h1', { class: 'topic' }, 'Dead letter');
  const root = h('section', { class: 'letter' }, h('p', { class: 'back' }, h('a', { href: latestList() }, '← Dead letters')), title, body);
  let asked = false;

  async function refresh() {
    // Once: every read is in the audit log.
    if (asked) return;
    try {
      const whole = await get(`/api/v1/dead-letters/${encodeURIComponent(id)}`);
      asked = true;
      say(title, visible(whole.topic));
      body.replaceChildren(...parts(whole));
    } catch (problem) {
      if (problem.status === 401 || problem.status === 0) throw problem;
      asked = true;
      body.replaceChildren(h('p', { class: 'notice bad', role: 'alert' }, problem.detail ?? problem.message));
    }
    body.className = 'whole';
    body.removeAttribute('aria-busy');
  }
  return { root, title: 'Dead letter', refresh };
}

function parts(whole) {
  const act = async (what) => {
    if (await ask(what, { ids: [whole.id], letters: [whole] }) && location.hash.endsWith(encodeURIComponent(whole.id))) location.hash = latestList();
  };
  const redrive = h('button', { type: 'button', class: 'main', disabled: !whole.configured, click: () => act('redrive') }, 'Redrive');
  const remove = h('button', { type: 'button', class: 'danger', click: () => act('delete') }, 'Delete');
  return [
    h('div', { class: 'verdict' },
      h('p', {}, pill(whole.code === undefined ? 'calm' : 'bad', whole.reason), ' at ', h('b', {}, `${whole.route}/${whole.binding}`),
        whole.code !== undefined && h('span', { class: 'muted' }, ` · code 0x${whole.code.toString(16).padStart(2, '0')}`)),
      whole.reason_string && h('blockquote', {}, h('span', { class: 'muted' }, 'The broker said: '), visible(whole.reason_string)),
      !whole.configured && h('p', { class: 'notice bad' }, 'The configuration has no such binding any more: this entry can be exported and deleted, and not redriven.'),
      h('div', { class: 'buttons' }, redrive, remove)),
    h('div', { class: 'split' }, payload(whole), facts(whole)),
  ];
}

function payload(whole) {
  const data = fromBase64(whole.payload);
  const views = new Map();
  const pretty = asJson(whole.payload_text);
  if (pretty !== undefined) views.set('JSON', () => pretty);
  if (whole.payload_text !== undefined) views.set('Text', () => whole.payload_text);
  views.set('Hex', (most) => hex(data.subarray(0, most / 4)));
  const area = h('pre', { class: 'payload', tabindex: 0, role: 'region', 'aria-label': 'Payload' });
  const more = h('button', { type: 'button', class: 'small', hidden: true }, 'Show all of it');
  let now = [...views.keys()][0];
  const display = (most = SHOWN) => {
    const text = views.get(now)(most);
    const cut = text.length > most || (now === 'Hex' && data.length > most / 4);
    say(area, now === 'Hex' ? text : visibleLines(text.slice(0, most)));
    if (data.length === 0) area.replaceChildren(h('span', { class: 'muted' }, 'empty'));
    more.hidden = !cut;
  };
  more.addEventListener('click', () => display(Number.MAX_SAFE_INTEGER));
  const choices = [...views.keys()].map((name) => h('label', {},
    h('input', { type: 'radio', name: 'payload-as', value: name, checked: name === now, change: () => { now = name; display(); } }), h('span', {}, name)));
  const copy = h('button', { type: 'button', class: 'small', hidden: whole.payload_text === undefined || !navigator.clipboard, click: async () => {
    try {
      await navigator.clipboard.writeText(whole.payload_text);
      announce('The payload is copied.');
      say(copy, 'Copied');
    } catch {
      say(copy, 'The browser does not allow it');
    }
  } }, 'Copy');
  display();
  return h('section', { class: 'card' },
    h('div', { class: 'card-head' }, h('h2', {}, 'Payload'), h('span', { class: 'muted' }, bytes(data.length), whole.payload_text === undefined ? ' · not UTF-8' : ''),
      h('fieldset', { class: 'choice' }, h('legend', { class: 'unseen' }, 'Show the payload as'), choices), copy),
    area, more);
}

/** Indented, when it is JSON. Numbers stay as they were written: only the spaces change. */
function asJson(text) {
  if (text === undefined || !/^\s*[[{]/.test(text)) return undefined;
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  return indented(text);
}

function indented(text) {
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  return tokens.map((token, place) => {
    const next = tokens[place + 1];
    if (token === '{' || token === '[') {
      depth += 1;
      return next === '}' || next === ']' ? token : token + line();
    }
    if (token === '}' || token === ']') {
      depth -= 1;
      const before = tokens[place - 1];
      return before === '{' || before === '[' ? token : line() + token;
    }
    if (token === ',') return token + line();
    return token === ':' ? ': ' : token;
  }).join('');
}

function facts(whole) {
  const when = (text) => [h('time', { datetime: text, title: `${text} (UTC)` }, local(text)), h('span', { class: 'muted' }, ` ${ago(text)}`)];
  const code = (text) => h('code', {}, visible(text));
  const { properties } = whole;
  const list = (pairs) => h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== undefined && value !== false)
    .flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, [value].flat())]));
  return h('section', { class: 'card' }, h('div', { class: 'card-head' }, h('h2', {}, 'What is known')),
    list([
      ['Given up', when(whole.last_refusal)],
      ['First refused', when(whole.first_refusal)],
      ['Attempts', number(whole.attempts)],
      ['Received', when(whole.received)],
      ['From session', whole.session],
      ['QoS, retain', `${whole.qos}, ${whole.retain ? 'retained' : 'not retained'}`],
      ['Message id', code(whole.message_id)],
      ['Dead letter', code(whole.id)],
      ['Caused by', whole.cause && [code(whole.cause.message_id), h('span', { class: 'sub' }, `redriven ${many(whole.cause.redrives, 'time')}`)]],
      ['Payload format', properties.payload_format === undefined ? undefined : ['bytes', 'UTF-8'][properties.payload_format]],
      ['Content type', properties.content_type && code(properties.content_type)],
      ['Expiry', properties.message_expiry !== undefined && `${number(properties.message_expiry)} s when it came`],
      ['Response topic', properties.response_topic && code(properties.response_topic)],
      ['Correlation data', properties.correlation_data && code(hex(fromBase64(properties.correlation_data)).trim())],
      ...properties.user_properties.map(([name, value]) => [h('code', {}, visible(name)), visible(value)]),
    ]));
}
