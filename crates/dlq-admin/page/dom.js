// Elements made by hand. What comes from a broker is text, here and everywhere: nothing in this
// page parses a string as markup, and no address is made of a stranger's words.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes, listeners (functions, by the name of their event) and children. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (name === 'href' && !String(value).startsWith('#')) throw new Error(`no address: ${value}`);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** Sets a text only when it differs: what does not change is not read out again. */
export function say(element, text) {
  const now = String(text);
  if (element.textContent !== now) element.textContent = now;
}

/** Makes the children of `parent` those of `items`, keeping the elements, and so the focus, of
    the ones that stay; what was put there without a key stays in front. `make` builds an element,
    `show` brings it up to date. */
export function keyed(parent, items, key, make, show) {
  const children = [...parent.children];
  const kept = new Map(children.filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  const first = children.length - kept.size;
  // First: else what stays would be moved in front of what goes, and lose the focus.
  const wanted = new Set(items.map((item) => key(item)));
  for (const [name, child] of kept) if (!wanted.has(name)) child.remove();
  items.forEach((item, place) => {
    const name = key(item);
    let element = kept.get(name);
    if (!element) {
      element = make(item);
      element.dataset.key = name;
    }
    show(element, item);
    const there = parent.children[first + place];
    if (there !== element) parent.insertBefore(element, there ?? null);
  });
}

/** A table with a caption; `columns` are `[title, class]`. */
export function table(caption, columns, ...bodies) {
  const heads = columns.map(([title, kind]) => {
    const unseen = kind === 'unseen';
    return h('th', { scope: 'col', class: unseen ? undefined : kind }, unseen ? h('span', { class: 'unseen' }, title) : title);
  });
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    h('table', {}, h('caption', { class: 'unseen' }, caption), h('thead', {}, h('tr', {}, heads)), bodies));
}

/** A cell; its label is shown where the table becomes a list of cards. */
export function cell(label, kind, ...children) {
  return h('td', { class: kind, 'data-label': label }, children);
}

/** A word with a colour and a mark, so that neither is needed for the other. */
export function pill(kind, text) {
  return h('span', { class: `pill ${kind}` }, text);
}

/** A labelled control. */
export function field(label, control, hint) {
  const id = control.id || `f-${control.name}`;
  control.id = id;
  if (hint) control.setAttribute('aria-describedby', `${id}-hint`);
  return h('div', { class: 'field' }, h('label', { for: id }, label), control,
    hint && h('p', { class: 'hint', id: `${id}-hint` }, hint));
}

/** A select of `[value, title]`. */
export function select(name, options, chosen, listeners = {}) {
  return h('select', { name, ...listeners },
    options.map(([value, title]) => h('option', { value, selected: value === chosen }, title)));
}

/** Reads out what happened. */
export function announce(text) {
  const said = document.getElementById('said');
  said.textContent = '';
  // A screen reader notices a change, not a repetition.
  requestAnimationFrame(() => { said.textContent = text; });
}
