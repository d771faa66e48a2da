// The admin API. The page session is a cookie that no script can read; nothing is stored here.

/** Why a call came to nothing. `status` is 0 when the bridge did not answer at all. */
export class Problem extends Error {
  constructor(status, title, detail, field, retryAfter) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.field = field;
    this.retryAfter = retryAfter;
  }
}

const ended = new EventTarget();

/** Calls `listener` whenever the bridge says that the page session has ended. */
export function whenEnded(listener) {
  ended.addEventListener('ended', listener);
}

export const get = (path, options) => call('GET', path, undefined, options);
export const post = (path, body, options) => call('POST', path, body, options);
export const remove = (path, options) => call('DELETE', path, undefined, options);

async function call(method, path, body, { within = 15, login = false } = {}) {
  const headers = { Accept: 'application/json' };
  if (method !== 'GET') headers['X-Bridge-Page'] = '1';
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  let text;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
      signal: AbortSignal.timeout(within * 1000),
    });
    text = await response.text();
  } catch (failure) {
    const late = failure.name === 'TimeoutError';
    throw new Problem(0, 'The bridge does not answer', late ? `not within ${within} s` : '');
  }
  let answer;
  try {
    answer = text === '' ? undefined : JSON.parse(text);
  } catch {
    throw new Problem(response.status, 'The answer is not from a bridge', `status ${response.status}`);
  }
  if (response.ok) return answer;
  if (response.status === 401 && !login) ended.dispatchEvent(new Event('ended'));
  const { title = `Status ${response.status}`, detail, field } = answer ?? {};
  const retryAfter = Number(response.headers.get('Retry-After')) || undefined;
  throw new Problem(response.status, title, detail, field, retryAfter);
}

/** A query of those parameters that are set. */
export function query(parameters) {
  const set = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== '');
  return set.length === 0 ? '' : `?${new URLSearchParams(set)}`;
}
