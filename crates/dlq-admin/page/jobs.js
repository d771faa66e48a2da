// Redrives and deletes of very many entries: how far they are, and an end to them.

import { get, post } from './api.js';
import { announce, cell, h, keyed, pill, say, table } from './dom.js';
import { local, many, number, visible, words } from './format.js';

const STATES = { running: 'busy', done: 'good', cancelled: 'warn', failed: 'bad' };

/** Begins a job with all that `filter` takes. */
export const startJob = (kind, filter) => post(`/api/v1/dead-letters/${kind}`, { filter, job: true });

export function jobs() {
  const said = h('p', { class: 'notice bad', role: 'alert', hidden: true });
  const list = h('div', { class: 'loading', 'aria-busy': 'true' }, 'Asking the bridge …');
  const root = h('section', {}, h('h1', {}, 'Jobs'),
    h('p', { class: 'muted' }, 'Redrives and deletes of very many dead letters. They go on when this page is closed, and are forgotten when the bridge restarts.'), said, list);

  const cancel = async (job) => {
    try {
      await post(`/api/v1/jobs/${encodeURIComponent(job.id)}/cancel`);
      said.hidden = true;
      announce('The job stops where it is; what has moved stays moved.');
      await refresh();
    } catch (problem) {
      say(said, problem.message);
      said.hidden = false;
    }
  };

  async function refresh() {
    const { items } = await get('/api/v1/jobs');
    list.removeAttribute('aria-busy');
    list.className = '';
    if (items.length === 0) {
      list.replaceChildren(h('p', { class: 'empty' }, h('b', {}, 'There are no jobs.'), ' One begins when more than a thousand dead letters are redriven or deleted by a filter.'));
      return;
    }
    if (!list.querySelector('table')) {
      list.replaceChildren(table('Jobs, the newest first', [['Job'], ['State'], ['Progress'], ['Moved', 'num'], ['Not moved'], ['Started'], ['Actions', 'unseen']], h('tbody', {})));
    }
    keyed(list.querySelector('tbody'), items, (job) => job.id, (job) => make(job, cancel), display);
  }
  return { root, title: 'Jobs', refresh };
}

function make(job, cancel) {
  return h('tr', {},
    h('th', { scope: 'row' }, h('span', { class: 'strong' }, job.kind), h('span', { class: 'sub' }, visible(job.about))),
    cell('State', ''),
    cell('Progress', '', h('progress', { 'aria-label': `Progress of the ${job.kind}` }), h('span', { class: 'sub' })),
    cell('Moved', 'num'), cell('Not moved', ''),
    cell('Started', 'when', h('time', { datetime: job.started, title: `${job.started} (UTC)` }, local(job.started))),
    cell('Actions', 'acts', h('button', { type: 'button', class: 'small', click: () => cancel(job) }, 'Cancel')));
}

function display(row, job) {
  const [, state, progress, done, failed, , acts] = row.children;
  if (state.dataset.is !== job.state) {
    state.dataset.is = job.state;
    state.replaceChildren(pill(STATES[job.state] ?? 'calm', job.state));
    // What ends while nobody looks at it is told.
    if (state.dataset.seen) announce(`The ${job.kind} is ${job.state}: ${number(job.done)} of ${number(job.matched)}.`);
    state.dataset.seen = '1';
  }
  const [bar, text] = progress.children;
  bar.max = Math.max(1, job.among);
  bar.value = job.state === 'done' ? bar.max : job.looked_at;
  const held = job.held_up.map(({ route, binding, by }) => ` · held up at ${route}/${binding}: ${words(by)}`);
  say(text, `looked at ${number(job.looked_at)} of ${number(job.among)}, ${number(job.matched)} match${held.join('')}`);
  say(done, number(job.done));
  const left = Object.entries(job.failed);
  say(failed, left.length === 0 ? '–' : left.map(([word, count]) => `${number(count)} ${words(word)}`).join(', '));
  failed.classList.toggle('nothing', left.length === 0);
  acts.firstChild.hidden = job.state !== 'running';
  row.title = job.ended ? `ended ${local(job.ended)}, ${many(job.done, 'entry', 'entries')}` : '';
}
