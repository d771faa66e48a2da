// Redriving and deleting: asked for, confirmed, and what came of each entry.

import { post, query } from './api.js';
import { announce, field, h, pill, say, select, table } from './dom.js';
import { local, many, number, visible, words } from './format.js';
import { startJob } from './jobs.js';

/** More than that are not waited for here: they become a job. */
const AT_ONCE = 1000;
/** So many results are listed one by one. */
const LISTED = 200;
const WAITS = [['0', 'do not wait'], ['5', '5 s'], ['10', '10 s'], ['30', '30 s'], ['60', '60 s']];

/** What an outcome is called, how it looks, and what it means. */
const OUTCOMES = {
  delivered: ['good', 'delivered', 'the broker has accepted it'],
  refused: ['bad', 'refused again', 'it is a dead letter again'],
  deferred: ['warn', 'deferred', 'not authorized; it is offered again for a while'],
  dropped: ['bad', 'dropped', 'by a policy of the configuration'],
  queued: ['busy', 'queued', 'at the tail of its queue; it goes out in its turn'],
  moved: ['busy', 'queued', 'at the tail of its queue; it goes out in its turn'],
  deleted: ['calm', 'deleted', 'gone for good'],
  not_found: ['warn', 'not found', 'somebody redrove or deleted it before'],
  already_redriven: ['warn', 'already redriven', 'another redrive moved it before'],
  binding_not_found: ['bad', 'binding not found', 'the configuration has no such binding; the entry stays'],
  queue_full: ['bad', 'queue full', 'its queue has no room; the entry stays'],
  store_failed: ['bad', 'store failed', 'the entry stays; the log of the bridge says why'],
  stopping: ['bad', 'bridge stopping', 'the entry stays'],
  unanswered: ['bad', 'no answer', 'the bridge stopped before its disk had answered: look again when it has started'],
};

/** Asks, does it, shows what came of it; true when something was done. `meant` has `ids`, or
    `filter` with `total`; and `letters`, as far as they are known. */
export function ask(what, meant) {
  return new Promise((resolve) => {
    let done = false;
    const close = () => dialog.close();
    const dialog = h('dialog', { 'aria-labelledby': 'ask-title', class: 'ask', close: () => {
      dialog.remove();
      resolve(done);
    } });
    const { form, wait, sure, said, buttons } = question(what, meant, close);
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      if (sure && !sure.checked) return sure.focus();
      for (const button of buttons) button.disabled = true;
      const seconds = Number(wait?.value ?? 0);
      said.className = 'notice';
      said.hidden = false;
      say(said, seconds > 0 ? `Asked for. Waiting up to ${seconds} s for what becomes of each …` : 'Asked for …');
      try {
        const node = await carryOut(what, meant, seconds, close);
        done = true;
        if (!dialog.isConnected) return;
        dialog.replaceChildren(...node);
        dialog.classList.add('wide');
        dialog.querySelector('h2').focus();
      } catch (problem) {
        said.className = 'notice bad';
        say(said, problem.status === 0 ? `${problem.message}. What was begun may have been done: look again.` : problem.message);
        done = problem.status === 0;
        for (const button of buttons) button.disabled = false;
      }
    });
    dialog.append(form);
    document.body.append(dialog);
    dialog.showModal();
  });
}

function question(what, meant, close) {
  const redrives = what === 'redrive';
  const count = meant.ids?.length ?? meant.total;
  const text = `${meant.exact === false ? 'at least ' : ''}${many(count, 'dead letter')}`;
  const title = h('h2', { id: 'ask-title' }, `${redrives ? 'Redrive' : 'Delete'} ${text}?`);
  const wait = redrives && asJob(meant) === false && select('wait', WAITS, '10');
  const sure = !redrives && h('input', { type: 'checkbox', id: 'ask-sure', required: true });
  const said = h('p', { class: 'notice', role: 'status', hidden: true });
  const act = h('button', { class: redrives ? 'main' : 'danger' }, redrives ? 'Redrive' : 'Delete for good');
  const cancel = h('button', { type: 'button', click: close }, 'Cancel');
  const form = h('form', { method: 'dialog' }, title,
    h('p', {}, redrives
      ? 'Each one goes back to the tail of the queue of the very binding that gave up on it; other bindings do not see it again.'
      : 'They are gone for good; nothing brings them back. An export keeps a copy: bridge dead-letters export.'),
    which(meant),
    wait && field('Wait for what becomes of each', wait),
    sure && h('p', { class: 'check' }, sure, h('label', { for: 'ask-sure' }, `Yes, delete ${text} for good`)),
    asJob(meant) && h('p', { class: 'hint' }, 'So many are done as a job, which goes on when this page is closed.'),
    said, h('div', { class: 'buttons' }, cancel, act));
  return { form, wait, sure, said, buttons: [act, cancel] };
}

const asJob = (meant) => meant.filter !== undefined && (meant.exact === false || meant.total > AT_ONCE);

/** What it is about: the topics of a selection, or the words of a filter. */
function which(meant) {
  if (meant.filter) {
    const parts = Object.entries(meant.filter).flatMap(([name, value]) => [h('dt', {}, words(name)), h('dd', {}, name === 'since' || name === 'until' ? h('time', { title: `${value} (UTC)` }, local(value)) : h('code', {}, visible(value)))]);
    return h('dl', { class: 'facts small-print' }, parts);
  }
  const letters = meant.letters ?? [];
  const topics = letters.slice(0, 5).map((letter) => h('li', {}, h('code', {}, visible(letter.topic)), h('span', { class: 'muted' }, ` at ${letter.route}/${letter.binding}`)));
  if (topics.length === 0) return h('p', {}, h('code', {}, meant.ids.join(', ')));
  const more = letters.length - topics.length;
  return h('ul', { class: 'which' }, topics, more > 0 && h('li', { class: 'muted' }, `and ${number(more)} more`));
}

async function carryOut(what, meant, seconds, close) {
  if (asJob(meant)) return jobStarted(await startJob(what, meant.filter), close);
  const body = meant.ids ? { ids: meant.ids } : { filter: meant.filter, limit: AT_ONCE };
  const wait = what === 'redrive' && seconds > 0 ? seconds : undefined;
  const answer = await post(`/api/v1/dead-letters/${what}${query({ wait })}`, body, { within: seconds + 60 });
  return results(what, answer, meant, close);
}

function jobStarted(job, close) {
  return [h('h2', { id: 'ask-title', tabindex: '-1' }, 'It has begun'),
    h('p', {}, 'How far it is, is told under Jobs, where it can be cancelled as well.'),
    h('div', { class: 'buttons' }, h('a', { class: 'button', href: '#/jobs', click: close }, 'To the jobs'), h('button', { type: 'button', class: 'main', click: close }, 'Close'))];
}

/** One line for each entry, and the sums of them. */
function results(what, answer, meant, close) {
  const topics = new Map((meant.letters ?? []).map((letter) => [letter.id, letter.topic]));
  const sums = new Map();
  const rows = answer.results.map((result) => {
    const outcome = result.outcome === 'moved' ? (result.verdict ?? 'moved') : result.outcome;
    const [kind, title, meaning] = OUTCOMES[outcome] ?? ['calm', words(outcome), ''];
    sums.set(title, (sums.get(title) ?? 0) + 1);
    return { result, kind, title, meaning };
  });
  const summary = [...sums].map(([title, count]) => `${number(count)} ${title}`).join(', ');
  const body = h('tbody', {}, rows.slice(0, LISTED).map(({ result, kind, title, meaning }) => h('tr', {},
    h('th', { scope: 'row', class: 'topic' }, topics.has(result.id) ? visible(topics.get(result.id)) : '', h('span', { class: 'sub' }, result.id)),
    h('td', {}, pill(kind, title)),
    h('td', {}, result.reason ? h('span', {}, h('code', {}, result.reason), '; ', meaning) : meaning,
      result.dead_letter && [' ', h('a', { href: `#/dead-letters/${encodeURIComponent(result.dead_letter)}`, click: close }, 'Look at it')]))));
  announce(summary === '' ? 'There was nothing to be done.' : summary);
  const left = rows.length - LISTED;
  return [h('h2', { id: 'ask-title', tabindex: '-1' }, summary === '' ? 'There was nothing to be done' : `${summary[0].toUpperCase()}${summary.slice(1)}`),
    rows.length > 0 && table(what === 'redrive' ? 'What became of each' : 'What was deleted', [['Dead letter'], ['Outcome'], ['Which means']], body),
    left > 0 && h('p', { class: 'muted' }, `and ${number(left)} more, which are in the sums above.`),
    h('div', { class: 'buttons' }, h('button', { type: 'button', class: 'main', click: close }, 'Close'))].filter(Boolean);
}
