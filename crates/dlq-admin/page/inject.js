// One test message, through a route or to one of its bindings.

import { get, post } from './api.js';
import { announce, field, h, pill, select, table } from './dom.js';
import { visible, words } from './format.js';

const VERDICTS = { delivered: 'good', refused: 'bad', deferred: 'warn', dropped: 'bad', queued: 'busy' };

export function inject() {
  const route = select('route', []);
  const to = select('to', []);
  const topic = h('input', { name: 'topic', required: true, spellcheck: 'false', autocapitalize: 'none', maxlength: 65535 });
  const payload = h('textarea', { name: 'payload', rows: 6, spellcheck: 'false' });
  const qos = select('qos', [['0', '0'], ['1', '1'], ['2', '2']], '1');
  const retain = h('input', { type: 'checkbox', name: 'retain', id: 'f-retain' });
  const send = h('button', { class: 'main', disabled: true }, 'Send');
  const said = h('div', { class: 'result' });
  let known = [];

  const targets = () => {
    const chosen = known.find((one) => one.name === route.value);
    const bindings = (chosen?.bindings ?? []).map((name) => [name, `only the binding ${name}`]);
    to.replaceChildren(...[['', 'all its bindings, as if it had come'], ...bindings].map(([value, title]) => h('option', { value }, title)));
    topic.placeholder = chosen?.topics.map(visible).join(', ') ?? '';
  };
  route.addEventListener('change', targets);

  const submit = async (event) => {
    event.preventDefault();
    if (send.disabled) return;
    send.disabled = true;
    said.replaceChildren(h('p', { class: 'notice' }, 'Sent. Waiting up to 10 s for what becomes of it …'));
    try {
      const message = { topic: topic.value, payload: payload.value, qos: Number(qos.value), retain: retain.checked };
      if (to.value !== '') message.binding = to.value;
      const answer = await post(`/api/v1/routes/${encodeURIComponent(route.value)}/inject?wait=10`, message, { within: 60 });
      said.replaceChildren(...outcome(route.value, answer));
    } catch (problem) {
      said.replaceChildren(h('p', { class: 'notice bad', role: 'alert' }, problem.field ? `${problem.field}: ${problem.detail}` : problem.message));
    }
    send.disabled = false;
  };

  const root = h('section', { class: 'narrow' }, h('h1', {}, 'Test message'),
    h('p', { class: 'muted' }, 'One message, put into the queues of the route as if its source had sent it. The brokers behind it see it like any other.'),
    h('form', { class: 'card form', submit },
      h('div', { class: 'pair' }, field('Route', route), field('To', to)),
      field('Topic', topic, 'A topic as it comes from the source, without wildcards.'),
      field('Payload', payload),
      h('div', { class: 'pair' }, field('QoS', qos), h('p', { class: 'check' }, retain, h('label', { for: 'f-retain' }, 'Retain'))),
      h('div', { class: 'buttons' }, send)), said);

  const refresh = async () => {
    if (known.length > 0) return;
    known = (await get('/api/v1/routes')).items;
    route.replaceChildren(...known.map((one) => h('option', { value: one.name }, one.name)));
    targets();
    send.disabled = known.length === 0;
  };
  return { root, title: 'Test message', refresh };
}

function outcome(route, answer) {
  const rows = answer.bindings.map((one) => h('tr', {}, h('th', { scope: 'row' }, `${route}/${one.binding}`),
    h('td', {}, pill(VERDICTS[one.verdict] ?? 'calm', one.verdict ? words(one.verdict) : 'queued')),
    h('td', {}, one.reason && h('code', {}, one.reason), one.dead_letter && [' ', h('a', { href: `#/dead-letters/${encodeURIComponent(one.dead_letter)}` }, 'Look at it')])));
  announce(answer.bindings.map((one) => `${one.binding}: ${one.verdict ?? 'queued'}`).join(', '));
  return [
    h('p', { class: 'notice' }, answer.stored ? 'It is stored as ' : 'It is not stored yet; the store is slow or fails: ', h('code', {}, answer.message_id)),
    table('What became of the test message', [['Binding'], ['Outcome'], ['Reason']], h('tbody', {}, rows)),
  ];
}
