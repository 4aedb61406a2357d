// What the checks of the page share: the browser, watched tabs, the list of failures, and the
// conversation with the test that started the script.
import { readFileSync } from 'node:fs';
import { access, constants } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';

const require = createRequire(path.join(process.env.RIGLM_TEST_CLIENTS, 'index.js'));
const puppeteer = require('puppeteer-core');
/** The text of axe-core, for pages and frames that do not have it yet. */
export const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** The deadline of one step, in milliseconds. */
export const PATIENCE = 20_000;
export const THEMES = ['light', 'dark'];
export const WIDTHS = [360, 1280];
const HEIGHT = 800;
/** The longest text of a failure. */
const MAX_SHOWN = 1_500;
// Characters that a terminal or a reader would obey: controls except tab and line feed, and
// bidirectional formatting.
export const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The report of this run.

const failures = [];
const measured = {};
let checks = 0;

const cut = (text) => (text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)} …` : text);

/** Notes one check; `detail` explains a failure. */
export function check(name, isGood, detail = '') {
  checks += 1;
  if (!isGood) failures.push(cut(detail === '' ? name : `${name}: ${typeof detail === 'string' ? detail : JSON.stringify(detail)}`));
  return Boolean(isGood);
}

/** Notes a measurement, with its unit in the name. It is printed, and not judged. */
export function measure(name, value) {
  measured[name] = Math.round(value * 10) / 10;
}

/** Runs steps that belong together. An error fails them, and the next ones go on. */
export async function attempt(name, steps) {
  try {
    await steps();
  } catch (error) {
    check(name, false, String(error.stack ?? error));
  }
}

/** Polls `read` until it returns a truthy value, which is returned, or the deadline has passed. */
export async function eventually(name, read, patience = PATIENCE) {
  const end = Date.now() + patience;
  let last = null;
  for (;;) {
    try {
      last = await read();
      if (last) {
        check(name, true);
        return last;
      }
    } catch (error) {
      last = String(error);
    }
    if (Date.now() >= end) {
      check(name, false, `not within ${patience / 1_000} s; last: ${JSON.stringify(last)}`);
      return null;
    }
    await sleep(100);
  }
}

// The conversation: a line of JSON on standard output asks the test for something, a line on
// standard input says that it is done.

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Asks the test to do something with the proxy, and waits until it is done. Returns its answer. */
export async function ask(request) {
  process.stdout.write(`${JSON.stringify({ ask: request })}\n`);
  const { value, done } = await lines.next();
  if (done) throw new Error('the test has gone');
  return JSON.parse(value);
}

/** Prints the report, as the last line. */
export function finish() {
  return new Promise((resolve) => {
    process.stdout.write(`${JSON.stringify({ report: { checks, failures, measured } })}\n`, resolve);
  });
}

/** Returns a client of the control API at `origin`. */
export function control(origin, token) {
  const send = async (method, route, body) => {
    const response = await fetch(origin + route, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(PATIENCE),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${route}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  };
  return { get: (route) => send('GET', route), post: (route, body) => send('POST', route, body) };
}

async function chromium() {
  if (process.env.RIGLM_TEST_CHROMIUM) return process.env.RIGLM_TEST_CHROMIUM;
  const folders = (process.env.PATH ?? '').split(path.delimiter);
  for (const name of ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']) {
    for (const folder of folders) {
      const program = path.join(folder, name);
      try {
        await access(program, constants.X_OK);
        return program;
      } catch {
        // The next place.
      }
    }
  }
  throw new Error('there is no Chromium: install the package chromium, or set RIGLM_TEST_CHROMIUM');
}

/** Runs `use` with a browser, which is closed in any case. */
export async function withBrowser(profile, use) {
  const browser = await puppeteer.launch({
    executablePath: await chromium(),
    headless: true,
    userDataDir: profile,
    timeout: 60_000,
    protocolTimeout: 60_000,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--no-first-run', '--lang=en-US'],
  });
  try {
    await use(browser);
  } finally {
    await Promise.race([browser.close().catch(() => {}), sleep(10_000)]);
    browser.process()?.kill('SIGKILL');
  }
}

/** A tab that notes everything that must not happen in the page. */
export class Tab {
  #problems = [];
  /** Patterns of problems that the next steps cause on purpose. */
  expected = [];
  /** The requests so far: method, address, and whether they carried a token. */
  requests = [];
  /** The addresses that the tab had. */
  addresses = [];

  static async open(browser, origin) {
    const tab = new Tab();
    tab.origin = origin;
    tab.context = await browser.createBrowserContext();
    await tab.#attach(await tab.context.newPage());
    return tab;
  }

  /** Opens another tab of the same window, with the same cookies and local storage. */
  async beside() {
    const tab = new Tab();
    tab.origin = this.origin;
    tab.context = this.context;
    await tab.#attach(await this.context.newPage());
    return tab;
  }

  async #attach(page) {
    this.page = page;
    page.setDefaultTimeout(PATIENCE);
    await page.setCacheEnabled(false);
    await page.evaluateOnNewDocument(() => {
      addEventListener('securitypolicyviolation', (event) => {
        console.error(`security policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
      });
    });
    page.on('console', (message) => {
      if (!['error', 'warn', 'warning', 'assert'].includes(message.type())) return;
      this.note(`console: ${message.text()} ${message.location()?.url ?? ''}`);
    });
    page.on('pageerror', (error) => this.note(`error: ${error?.stack ?? error}`));
    page.on('dialog', (dialog) => {
      this.note(`dialog: ${dialog.message()}`);
      dialog.dismiss().catch(() => {});
    });
    page.on('popup', () => this.note('the page opened a window'));
    page.on('request', (request) => {
      const address = request.url();
      this.requests.push({ method: request.method(), address, hasToken: 'authorization' in request.headers() });
      const isOwn = address.startsWith(`${this.origin}/`) || /^(data|blob):/.test(address) || address === 'about:blank';
      if (!isOwn) this.note(`a request to elsewhere: ${address}`);
    });
    page.on('framenavigated', (frame) => this.addresses.push(frame.url()));
    await this.show(WIDTHS[1], THEMES[0]);
  }

  note(problem) {
    if (!this.expected.some((pattern) => pattern.test(problem))) this.#problems.push(problem);
  }

  /** Returns the problems since the last call. */
  problems() {
    return this.#problems.splice(0);
  }

  async show(width, theme) {
    await this.page.setViewport({ width, height: HEIGHT });
    await this.page.emulateMediaFeatures([
      { name: 'prefers-color-scheme', value: theme },
      { name: 'prefers-reduced-motion', value: 'reduce' },
    ]);
  }

  /** Opens an address of the page, such as `#/tools`, and waits until the screen is complete. */
  async visit(fragment) {
    const wanted = `${this.origin}/${fragment}`;
    // A screen of before is marked, so that it is not taken for the new one.
    const isThere = await this.page.evaluate(() => {
      document.querySelector('main .screen')?.setAttribute('data-before', '');
      return location.href;
    }).then((address) => address === wanted);
    if (isThere) await this.page.reload({ waitUntil: 'domcontentloaded' });
    else await this.page.goto(wanted, { waitUntil: 'domcontentloaded' });
    await this.settled();
  }

  /** Waits until a screen is shown and its requests are answered. */
  async settled() {
    await this.page.waitForFunction(() => {
      const screen = document.querySelector('main .screen:not([data-before])');
      return screen?.querySelector('h1') && !document.querySelector('main').hasAttribute('aria-busy');
    });
    // The stream of events stays open.
    await this.page.waitForNetworkIdle({ idleTime: 250, concurrency: 1, timeout: PATIENCE }).catch(() => {});
  }

  /** Opens the page and signs in by the form. */
  async signIn(token, fragment = '') {
    await this.page.goto(`${this.origin}/${fragment}`, { waitUntil: 'domcontentloaded' });
    await this.enter(token);
    await this.settled();
  }

  /** Types a token into the form and sends it. */
  async enter(token) {
    const field = await this.page.waitForSelector('main form input[type=password]');
    await field.evaluate((input) => { input.value = ''; });
    await field.type(token);
    await field.press('Enter');
  }

  /** Returns the visible text of the screen. */
  text() {
    return this.page.$eval('main', (main) => main.innerText);
  }

  /** Clicks the first enabled button whose name begins with one of the words. Returns whether there is one. */
  async click(words, within = 'body') {
    const handle = await this.page.evaluateHandle((words, within) => {
      const places = [...document.querySelectorAll(within)];
      const buttons = places.flatMap((place) => [...place.querySelectorAll('button:not([disabled])')]);
      const name = (button) => (button.getAttribute('aria-label') ?? button.innerText).trim();
      return buttons.find((button) => words.some((word) => name(button).startsWith(word)) && button.checkVisibility()) ?? null;
    }, words, within);
    const button = handle.asElement();
    if (!button) return false;
    await button.evaluate((node) => node.scrollIntoView({ block: 'center' }));
    await button.click();
    return true;
  }

  /** Confirms the dialog, if one opens. */
  async confirm(words) {
    const dialog = await this.page.waitForSelector('dialog[open]', { timeout: 2_000 }).catch(() => null);
    if (dialog) await this.click(words, 'dialog[open]');
  }

  /** Checks what holds for every screen in every state. */
  async audit(name) {
    const found = await this.page.evaluate(() => {
      const root = document.documentElement;
      const beyond = [...document.querySelectorAll('body *')].filter((node) => node.getBoundingClientRect().right > root.clientWidth + 1);
      const outside = beyond.filter((node) => !node.closest('.scroll, .hidden-text, dialog'));
      const wide = (outside.length > 0 ? outside : beyond)
        .slice(0, 5)
        .map((node) => `${node.tagName}.${node.getAttribute('class') ?? ''} ${node.textContent.slice(0, 60)}`);
      return {
        headings: [...document.querySelectorAll('h1')].map((node) => node.innerText.trim()),
        title: document.title,
        errors: [...document.querySelectorAll('main .notice.error, .toast.error')].map((node) => node.innerText),
        overflow: root.scrollWidth - root.clientWidth,
        wide,
        words: document.body.innerText,
        attributes: [...document.querySelectorAll('[title], [aria-label]')]
          .map((node) => `${node.getAttribute('title') ?? ''} ${node.getAttribute('aria-label') ?? ''}`).join('\n'),
      };
    });
    check(`${name}: one heading of the first level`, found.headings.length === 1 && found.headings[0] !== '', found.headings);
    check(`${name}: a title`, found.title.includes('riglm'), found.title);
    check(`${name}: no error is shown`, found.errors.length === 0, found.errors);
    check(`${name}: no horizontal scrolling`, found.overflow <= 0, { overflow: found.overflow, wide: found.wide });
    check(`${name}: hidden characters are visible`, !HIDDEN.test(found.words + found.attributes), HIDDEN.exec(found.words + found.attributes)?.index);
    check(`${name}: no undefined value`, !/\b(undefined|NaN|\[object )/.test(found.words), /.{0,40}\b(undefined|NaN|\[object ).{0,40}/.exec(found.words)?.[0]);
    const serious = await this.#axe();
    check(`${name}: accessible`, serious.length === 0, serious);
    const problems = this.problems();
    check(`${name}: no problem in the browser`, problems.length === 0, problems);
  }

  /** Returns the serious findings of axe-core, each with its places. */
  async #axe() {
    // Through the debugger, which the content security policy of the page does not concern.
    if (!(await this.page.evaluate(() => 'axe' in window))) await this.page.evaluate(AXE);
    const violations = await this.page.evaluate(async () => {
      const found = await window.axe.run(document, { resultTypes: ['violations'], preload: false });
      return found.violations.map(({ id, impact, help, nodes }) => ({
        id,
        impact,
        help,
        places: nodes.slice(0, 3).map((node) => `${node.html.slice(0, 200)} ${node.failureSummary?.slice(0, 200) ?? ''}`),
      }));
    });
    return violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  }
}

/** Returns whether a text has a number, and not only as a part of a longer one. */
export function hasNumber(text, number) {
  return new RegExp(`(?<![\\d.,])${number}(?!\\d|[.,]\\d)`).test(text);
}
