// Numbers, instants and strangers' texts, for people.

const NUMBER = new Intl.NumberFormat('en-GB');
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
// Without a shape of their own, or changing the direction of what is around them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;

export const number = (value) => NUMBER.format(value);

export function bytes(value) {
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)} ${UNITS[unit]}`;
}

/** Messages per second. */
export function rate(value) {
  if (value === undefined) return '–';
  if (value === 0) return '0';
  return value < 10 ? value.toFixed(1) : number(Math.round(value));
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

const pad = (value) => String(value).padStart(2, '0');

/** Local time, as `30 Nov 14:03:07`; with the year when it is another one. */
export function local(text) {
  const at = new Date(text);
  const month = at.toLocaleString('en-GB', { month: 'short' });
  const year = at.getFullYear() === new Date().getFullYear() ? '' : ` ${at.getFullYear()}`;
  return `${at.getDate()} ${month}${year} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** How far the clock of the bridge is from the one here. */
let skew = 0;
export function setClock(now) {
  skew = new Date(now).getTime() - Date.now();
}

/** How long ago that was, by the clock of the bridge. */
export function ago(text) {
  const seconds = Math.max(0, (Date.now() + skew - new Date(text).getTime()) / 1000);
  return seconds < 1 ? 'just now' : `${duration(seconds)} ago`;
}

/** How many of a thing, in words. */
export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

/** What a machine calls it, for reading. */
export const words = (name) => name.replaceAll('_', ' ');

/** A stranger's text in one line: what cannot be seen is written out. */
export function visible(text) {
  return text.replace(UNSEEN, escaped);
}

/** The same for a payload, whose lines and tabs stay. */
export function visibleLines(text) {
  return text.replace(UNSEEN, (char) => (char === '\n' || char === '\t' ? char : escaped(char)));
}

function escaped(char) {
  return `\\u{${char.codePointAt(0).toString(16)}}`;
}

/** Bytes as a dump of sixteen a line. */
export function hex(data) {
  const lines = [];
  for (let from = 0; from < data.length; from += 16) {
    const part = [...data.slice(from, from + 16)];
    const codes = part.map((byte) => byte.toString(16).padStart(2, '0'));
    const left = codes.slice(0, 8).join(' ').padEnd(23);
    const right = codes.slice(8).join(' ').padEnd(23);
    const text = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${from.toString(16).padStart(8, '0')}  ${left}  ${right}  ${text}`);
  }
  return lines.join('\n');
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
