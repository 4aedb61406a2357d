// Checks the app of the proxy in a browser, inside of a page that plays the host of a chat. The
// argument is a file with the scene as JSON: `page` is the text of the app, `result` the result of the
// tool that shows the session, `names` the names of its tools, `tool` the name of that tool, and `profile`
// a folder for the browser. Prints a report.
import { readFileSync } from 'node:fs';
import http from 'node:http';

import { AXE, HIDDEN, THEMES, Tab, WIDTHS, attempt, check, eventually, finish, withBrowser } from './browser.mjs';

const scene = JSON.parse(readFileSync(process.argv[2], 'utf8'));

/** What a host allows an app that names no domains. */
const POLICY = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; media-src 'self' data:; connect-src 'none'";
/** The name by which a host knows the tool that shows the session, other than the configured one. */
const HOST_NAME = 'riglm__show_it';
/** A text that is no markup. */
const MARKUP = '<img src=x onerror=alert(6)>\u202e\u001b[31m';

/** Plays the host, in its page: the answers to the app, and everything that the app sends. */
function playHost(result) {
  const address = new URLSearchParams(location.search);
  const theme = address.get('theme');
  // A host need not say which tool the app belongs to.
  const toolInfo = address.has('tool') ? { tool: { name: address.get('tool') } } : undefined;
  const state = { result, seen: [], answers: {}, refusal: null };
  window.host = state;
  state.send = (message) => state.frame.contentWindow.postMessage(message, '*');
  const answer = (id, body) => state.send({ jsonrpc: '2.0', id, ...body });
  addEventListener('message', ({ data, source }) => {
    if (source !== state.frame.contentWindow) return;
    state.seen.push(data);
    if (data.method === undefined) state.answers[data.id] = data;
    if (data.method === 'ui/initialize') {
      answer(data.id, {
        result: {
          protocolVersion: '2026-01-26',
          hostInfo: { name: 'host', version: '1' },
          hostCapabilities: { serverTools: {} },
          hostContext: { theme, toolInfo },
        },
      });
    } else if (data.method === 'ui/notifications/initialized') {
      state.send({ jsonrpc: '2.0', method: 'ui/notifications/tool-input', params: { arguments: {} } });
      state.send({ jsonrpc: '2.0', method: 'ui/notifications/tool-result', params: state.result });
    } else if (data.method === 'ui/notifications/size-changed') {
      state.frame.style.height = `${data.params.height}px`;
    } else if (data.method === 'tools/call') {
      answer(data.id, state.refusal ? { error: { code: -32000, message: state.refusal } } : { result: state.result });
    }
  });
  state.frame = document.createElement('iframe');
  state.frame.title = 'app';
  state.frame.sandbox = 'allow-scripts';
  state.frame.style.cssText = 'width: 100%; border: 0';
  state.frame.src = '/app';
  document.body.append(state.frame);
}

function serve() {
  const json = JSON.stringify(scene.result).replaceAll('<', '\\u003c');
  const host = `<!doctype html><html lang="en"><meta charset="utf-8"><title>host of riglm</title><body><h1>Chat</h1><script>(${playHost})(${json})</script>`;
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://host');
    if (pathname === '/') response.setHeader('content-type', 'text/html; charset=utf-8').end(host);
    else if (pathname === '/app') {
      response.setHeader('content-type', 'text/html; charset=utf-8');
      response.setHeader('content-security-policy', POLICY).end(scene.page);
    } else response.writeHead(204).end();
  });
  return new Promise((resolve) => { server.listen(0, '127.0.0.1', () => resolve(server)); });
}

/** An app in its host. */
class App {
  static async open(tab, theme, tool = HOST_NAME) {
    const named = tool === null ? '' : `&tool=${tool}`;
    await tab.page.goto(`${tab.origin}/?theme=${theme}${named}`, { waitUntil: 'domcontentloaded' });
    const app = new App();
    app.tab = tab;
    const element = await tab.page.waitForSelector('iframe');
    app.frame = await element.contentFrame();
    return app;
  }

  text() {
    return this.frame.evaluate(() => document.body.innerText);
  }

  status() {
    return this.frame.evaluate(() => document.querySelector('#status').innerText);
  }

  theme() {
    return this.frame.evaluate(() => document.documentElement.dataset.theme);
  }

  send(message) {
    return this.tab.page.evaluate((message) => window.host.send(message), message);
  }

  notify(method, params) {
    return this.send({ jsonrpc: '2.0', method, params });
  }

  /** Returns the messages of the app with this method. */
  seen(method) {
    return this.tab.page.evaluate((method) => window.host.seen.filter((message) => message.method === method), method);
  }

  /** Sets members of the state of the host. */
  set(state) {
    return this.tab.page.evaluate((state) => Object.assign(window.host, state), state);
  }

  /** Checks what holds in every state. */
  async audit(name) {
    const found = await this.frame.evaluate(() => {
      for (const details of document.querySelectorAll('details')) details.open = true;
      const root = document.documentElement;
      return {
        headings: [...document.querySelectorAll('h1')].map((node) => node.innerText),
        overflow: root.scrollWidth - root.clientWidth,
        markup: document.querySelectorAll('img, svg, a, b, iframe, object').length,
        scripts: document.querySelectorAll('script').length,
        words: document.body.innerText,
      };
    });
    check(`${name}: one heading of the first level`, found.headings.length === 1, found.headings);
    check(`${name}: no horizontal scrolling`, found.overflow <= 0, found.overflow);
    check(`${name}: nothing was taken for markup`, found.markup === 0 && found.scripts === 1, found);
    check(`${name}: hidden characters are visible`, !HIDDEN.test(found.words), HIDDEN.exec(found.words)?.index);
    check(`${name}: no undefined value`, !/\b(undefined|NaN|\[object )/.test(found.words), found.words.slice(0, 500));
    if (!(await this.frame.evaluate(() => 'axe' in window))) await this.frame.evaluate(AXE);
    const violations = await this.frame.evaluate(async () => {
      const { violations: all } = await window.axe.run(document, { resultTypes: ['violations'], preload: false });
      return all.map(({ id, impact, nodes }) => ({ id, impact, place: nodes[0]?.html.slice(0, 200) }));
    });
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    check(`${name}: accessible`, serious.length === 0, serious);
    const problems = this.tab.problems();
    check(`${name}: no problem in the browser`, problems.length === 0, problems);
  }
}

const shown = (app) => eventually('the session is shown', async () => (await app.status()).startsWith('As of'));

/** Widths and themes, with the names of a real result. */
async function looks(tab) {
  const { list } = scene.result.structuredContent;
  for (const theme of THEMES) {
    for (const width of WIDTHS) {
      await tab.show(width, THEMES.find((other) => other !== theme));
      const app = await App.open(tab, theme);
      await shown(app);
      const name = `${theme}, ${width} px`;
      check(`${name}: the theme is that of the host`, (await app.theme()) === theme, await app.theme());
      await app.audit(name);
      const words = await app.text();
      check(`${name}: the numbers of tools`, words.includes(`Listed: ${list.n_shown}`) && words.includes(`Hidden: ${list.n_hidden}`), words.slice(0, 500));
      check(`${name}: a long name is complete`, words.replace(/\s/g, '').includes('long_name_'.repeat(1_000)));
      check(`${name}: markup is text`, words.includes(scene.names[0]), words.slice(0, 500));
      check(`${name}: reversed text is marked`, words.includes('\\u{202e}') && words.includes('\\u{1b}'));
      check(`${name}: outcomes of calls`, words.includes('error') && words.includes('ok'));
    }
  }
}

/** The messages of the app, and its reactions to those of the host. */
async function messages(tab) {
  await tab.show(WIDTHS[0], THEMES[0]);
  const app = await App.open(tab, 'light');
  await shown(app);
  const [hello] = await app.seen('ui/initialize');
  check('the app names its protocol', hello?.params?.protocolVersion === '2026-01-26' && hello.params.appInfo?.name === 'riglm-session', hello);
  check('the app is ready once', (await app.seen('ui/notifications/initialized')).length === 1);
  const sizes = await app.seen('ui/notifications/size-changed');
  check('the app tells its size', sizes.length > 0 && sizes.every(({ params }) => params.width > 0 && params.height > 0), sizes);

  await attempt('refreshing', async () => {
    const { result } = scene;
    const next = [{ name: MARKUP, probability: 0.25, is_shown: false, sentence: MARKUP }];
    const calls = [{ name: MARKUP, outcome: 'timeout', at: '2026-01-01T00:00:00Z', duration_us: 1_500_000 }];
    const data = { ...result.structuredContent, next, calls, n_calls: 4_321, n_failed: 1 };
    await app.set({ result: { ...result, structuredContent: data } });
    await app.frame.focus('#refresh');
    await tab.page.keyboard.press('Enter');
    await eventually('a refresh shows the new state', async () => (await app.text()).includes('4,321'));
    const [call] = await app.seen('tools/call');
    check('a refresh calls the tool by the name that the host knows', call?.params?.name === HOST_NAME, call);
    const words = await app.text();
    check('the probability and the duration', words.includes('25 %') && words.includes('1.5 s'), words.slice(0, 800));
    const focused = await app.frame.evaluate(() => document.activeElement.id);
    check('the button keeps the focus', focused === 'refresh', focused);
    await app.audit('after a refresh');
  });
  await attempt('a refused refresh', async () => {
    await app.set({ refusal: MARKUP });
    await app.frame.click('#refresh');
    await eventually('a refusal is explained', async () => (await app.status()).startsWith('Not refreshed: <img'));
    await app.audit('after a refusal');
    await app.set({ refusal: null });
  });
  await attempt('another theme', async () => {
    await app.notify('ui/notifications/host-context-changed', { theme: 'dark' });
    await eventually('the theme follows the host', async () => (await app.theme()) === 'dark');
    await app.notify('ui/notifications/host-context-changed', { locale: 'en' });
    check('other changes leave it', (await app.theme()) === 'dark');
  });
  await attempt('requests of the host', async () => {
    await app.send({ jsonrpc: '2.0', id: 'p', method: 'ping' });
    await app.send({ jsonrpc: '2.0', id: 't', method: 'ui/resource-teardown', params: { reason: 'end' } });
    await app.send({ jsonrpc: '2.0', id: 'x', method: 'tools/list' });
    const answers = await eventually('requests are answered', async () => {
      const all = await tab.page.evaluate(() => window.host.answers);
      return all.p && all.t && all.x ? all : null;
    });
    check('known requests succeed', answers?.p.result && answers.t.result, answers);
    check('unknown requests fail', answers?.x.error?.code === -32601, answers);
  });
  await attempt('results without a session', async () => {
    await app.notify('ui/notifications/tool-result', { isError: true, content: [{ type: 'text', text: MARKUP }] });
    await eventually('the text of an error is shown', async () => (await app.status()).startsWith('<img'));
    await app.notify('ui/notifications/tool-cancelled', { reason: 'user' });
    await eventually('a cancellation is shown', async () => (await app.status()).includes('cancelled'));
  });
  await attempt('messages of another form', async () => {
    const odd = { list: { n_shown: 'x', sentence: 7 }, shown: 7, hidden: [null, 3, {}], calls: [{}, 'a'], next: 'b', n_failed: {} };
    for (const message of [null, 7, 'text', [], {}, { jsonrpc: '2.0' }, { jsonrpc: '2.0', id: 99, result: {} }]) await app.send(message);
    await app.notify('ui/notifications/tool-result', null);
    await app.notify('ui/notifications/tool-result', { structuredContent: odd });
    await eventually('odd data are shown as far as possible', async () => (await app.status()).startsWith('As of'));
    await app.audit('odd data');
  });
}

/** A host that does not name the tool, and notes about the calls. */
async function plainHost(tab) {
  const app = await App.open(tab, 'light', null);
  await shown(app);
  const { result } = scene;
  const note = `Recent calls are not shown: ${MARKUP}`;
  const data = { ...result.structuredContent, calls: [], n_calls: null, n_failed: null, calls_note: note };
  await app.set({ result: { ...result, structuredContent: data } });
  await app.frame.click('#refresh');
  await eventually('a note about the calls is shown', async () => (await app.text()).includes('Recent calls are not shown: <img'));
  const [call] = await app.seen('tools/call');
  check('a refresh calls the tool by its configured name', call?.params?.name === scene.tool, call);
  check('unknown calls are not called none', !(await app.text()).includes('has called no tool'));
  await app.audit('a note about the calls');
}

const server = await serve();
const origin = `http://127.0.0.1:${server.address().port}`;
await attempt('the app of the proxy', () => withBrowser(scene.profile, async (browser) => {
  const tab = await Tab.open(browser, origin);
  await attempt('looks', () => looks(tab));
  await attempt('messages', () => messages(tab));
  await attempt('a plain host', () => plainHost(tab));
  const others = tab.requests.filter(({ address }) => !address.startsWith(`${origin}/`));
  check('the app asks for nothing', others.length === 0, others);
}));
await finish();
process.exit(0);
