// Checks the page of the control port in a browser. The argument is the scene as JSON: `part`
// names the checks, `origin` and `token` the control port, `profile` a folder for the browser; the
// other members depend on the part. Asks the test for what happens in the proxy, and prints a
// report.
import { mkdir } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';

import {
  PATIENCE, THEMES, Tab, WIDTHS, ask, attempt, check, control, eventually, finish, hasNumber, measure, sleep, withBrowser,
} from './browser.mjs';

/** The deadline of what the page shows by itself, in milliseconds: the machine may be busy. */
const LIVE_PATIENCE = 60_000;
/** How long the control port keeps an overview, in milliseconds, and a second more. */
const OVERVIEW_AGE = 6_000;

/** Words that only the code, the configuration and the control API have. */
const JARGON = /policy epoch|full tokens|`[^`]*`/;

/** What the screens Now and Learning call by the same names. */
const SAVED = ['First uses listed', 'Tokens saved (gross)', 'Cost avoided (net)'];

const scene = JSON.parse(process.argv[2]);
const api = control(scene.origin, scene.token);

const enc = encodeURIComponent;
const toolAddress = ({ upstream, tool }) => `#/tools/${enc(upstream)}/${enc(tool)}`;

/** Returns the addresses of all screens; `tool` is the one whose screen is shown. */
function screens(session, tool) {
  return {
    now: '#/now',
    sessions: '#/sessions',
    session: `#/sessions/${enc(session)}`,
    tools: '#/tools',
    tool: toolAddress(tool),
    paths: '#/paths',
    learning: '#/learning',
    changes: '#/changes',
    setup: '#/setup',
  };
}

/** Waits until the last call of the played session is stored, and returns the session. */
async function playedSession() {
  const { upstream, tool } = scene.last;
  const detail = await eventually('the session is stored', async () => {
    const stored = await api.get(`/sessions/${enc(scene.session)}`);
    const ended = stored.timeline.filter((entry) => entry.type === 'call' && entry.outcome !== null);
    return ended.some((entry) => entry.upstream === upstream && entry.tool === tool) ? stored : null;
  });
  // The transport has an identifier of its own; links have that of the connection.
  scene.session = detail?.session?.id ?? scene.session;
  return detail;
}

/** The token: asked once, kept for the tab, in no address; one-time codes. */
async function signIn(browser) {
  const tab = await Tab.open(browser, scene.origin);
  const { page } = tab;
  const alert = (one) => one.page.$eval('main [role=alert]', (node) => node.innerText.trim()).catch(() => '');
  const isSignedIn = (one) => one.page.$eval('main', (main) => main.querySelector('.screen h1') !== null && main.querySelector('input[type=password]') === null);

  await attempt('without a token', async () => {
    await page.goto(`${scene.origin}/#/tools`, { waitUntil: 'networkidle0' });
    await page.waitForSelector('main form input[type=password]');
    for (const theme of THEMES) {
      await tab.show(WIDTHS[0], theme);
      await tab.audit(`the form for the token, ${theme}`);
    }
    const others = tab.requests.filter(({ address }) => !/^\/(page\/[\w.-]+)?$/.test(new URL(address).pathname));
    check('without a token nothing is asked of the control API', others.length === 0, others);
  });
  await attempt('a wrong token', async () => {
    // The browser itself reports the refusal.
    tab.expected = [/401/];
    await tab.enter('a-wrong-token');
    await eventually('a wrong token is explained', async () => /token/i.test(await alert(tab)));
    await tab.enter('not a token ☃');
    await eventually('an impossible token is explained', async () => (await alert(tab)).length > 10);
    check('a wrong token does not open the page', !(await isSignedIn(tab)));
    tab.expected = [];
  });
  await attempt('the right token', async () => {
    await tab.enter(scene.token);
    await tab.settled();
    check('the address of before is shown', page.url() === `${scene.origin}/#/tools`, page.url());
    await tab.audit('the first screen');
    const stores = await page.evaluate(() => ({
      local: JSON.stringify(localStorage), cookies: document.cookie, text: document.documentElement.outerHTML,
    }));
    check('the token is in no lasting storage', ![stores.local, stores.cookies, stores.text].some((store) => store.includes(scene.token)));
    await page.reload({ waitUntil: 'domcontentloaded' });
    await tab.settled();
    check('the token lasts for the tab', await isSignedIn(tab));
  });
  await attempt('another tab', async () => {
    const other = await tab.beside();
    await other.page.goto(scene.origin, { waitUntil: 'networkidle0' });
    check('another tab asks for the token', (await other.page.$('main form input[type=password]')) !== null);
    await other.page.close();
    await page.bringToFront();
  });
  await attempt('sign out', async () => {
    await page.click('#sign-out');
    await page.waitForSelector('main form input[type=password]');
    check('signing out forgets the token', !(await page.evaluate(() => JSON.stringify(sessionStorage))).includes(scene.token));
  });
  await attempt('a one-time code', async () => {
    const { code, expires_at: end } = await api.post('/page/codes', {});
    const left = Date.parse(end) - Date.now();
    check('a code is valid for a minute', left > 30_000 && left < 90_000, left);
    const first = await Tab.open(browser, scene.origin);
    await first.page.goto(`${scene.origin}/#code=${enc(code)}`, { waitUntil: 'domcontentloaded' });
    await first.settled();
    check('a code opens the page', await isSignedIn(first));
    check('the code leaves the address', !first.page.url().includes(code), first.page.url());
    await first.audit('the page after a code');
    const second = await Tab.open(browser, scene.origin);
    second.expected = [/404/];
    await second.page.goto(`${scene.origin}/#code=${enc(code)}`, { waitUntil: 'domcontentloaded' });
    await second.page.waitForSelector('main form input[type=password]');
    await eventually('a used code is explained', async () => /used|older/.test(await alert(second)));
    check('a used code does not open the page', !(await isSignedIn(second)));
    second.expected = [];
    await second.audit('the page after a used code');
    check('a code is sent in no address', ![...first.requests, ...second.requests].some(({ address }) => address.split('#')[0].includes(code)));
  });
  const seen = [...tab.addresses, ...tab.requests.map(({ address }) => address)];
  check('the token is in no address', !seen.some((address) => address.includes(scene.token)));
}

/** Returns the texts and numbers of the API that each screen has to show. */
async function expectations(detail) {
  const overview = await api.get('/overview?days=1');
  const { tools } = await api.get('/tools?limit=1000');
  const { transitions } = await api.get('/paths?limit=50');
  const { held } = await api.get(`/upstreams/${enc(scene.holding)}/held`);
  const { upstreams } = await api.get('/upstreams');
  const { total } = await api.get('/learning?days=30');
  const calls = detail.timeline.filter(({ type }) => type === 'call');
  const names = [...new Set(calls.map(({ tool }) => tool))];
  const own = tools.find(({ upstream, tool }) => upstream === scene.hidden.upstream && tool === scene.hidden.tool);
  const { sessions } = await api.get('/sessions');
  const listed = sessions.find(({ id }) => id === detail.session?.id);
  check('the scene has failed calls, searches, misses and held changes',
    overview.totals.failed_calls > 0 && overview.totals.searches > 0 && overview.totals.misses > 0 && held.length > 0, overview.totals);
  check('the scene has hidden tools', overview.totals.shown_tools < overview.totals.available_tools, overview.totals);
  // The lists of all sessions are alike, so their mean is a whole number.
  const means = [overview.totals.shown_tools, overview.totals.available_tools].map((sum) => sum / overview.totals.sessions);
  check('the lists of all sessions are alike', means.every(Number.isInteger), overview.totals);
  return {
    now: {
      texts: [scene.client, ...SAVED, ...upstreams.map(({ name }) => name)],
      numbers: [overview.totals.calls, ...means],
    },
    sessions: { texts: [scene.client], numbers: [listed?.calls, listed?.lists.shown_tools, listed?.lists.searches, listed?.lists.misses] },
    session: { texts: [...names, 'The server answered with an error'], numbers: [] },
    tools: { texts: names, numbers: [tools.length], rows: tools.filter((tool) => tool.calls > 0) },
    tool: { texts: [scene.hidden.tool], numbers: [own?.calls] },
    paths: { texts: [transitions[0]?.from.tool, transitions[0]?.to.tool], numbers: [transitions[0]?.count] },
    learning: { texts: ['Calibration', ...SAVED], numbers: [total.tools_used, total.sessions] },
    changes: { texts: held.map(({ tool }) => tool), numbers: [held.length] },
    setup: { texts: upstreams.map(({ name }) => name), numbers: [] },
  };
}

/** Returns the texts of the row of a tool in the table of all tools. */
function toolRow(tab, tool) {
  return tab.page.$$eval('main .table-box tbody tr', (rows, address) => {
    const own = rows.find((row) => [...row.querySelectorAll('a')].some((link) => link.hash === address));
    return own ? [...own.cells].map((cell) => cell.innerText.trim()) : null;
  }, toolAddress(tool));
}

/** Visits an address while the control API gives an answer for a path. */
async function visitWith(tab, address, route, body) {
  const answer = (request) => (new URL(request.url()).pathname === route
    ? request.respond({ status: 200, contentType: 'application/json', body: JSON.stringify(body) })
    : request.continue());
  await tab.page.setRequestInterception(true);
  tab.page.on('request', answer);
  await tab.visit(address);
  tab.page.off('request', answer);
  await tab.page.setRequestInterception(false);
}

/** All screens with the data of a played session, at both widths and in both themes. */
async function allScreens(browser) {
  const detail = await playedSession();
  if (!detail) return;
  const expected = await expectations(detail);
  const tab = await Tab.open(browser, scene.origin);
  await tab.signIn(scene.token);
  if (scene.screenshots) await mkdir(scene.screenshots, { recursive: true });
  for (const width of WIDTHS) {
    for (const theme of THEMES) {
      await tab.show(width, theme);
      for (const [name, address] of Object.entries(screens(scene.session, scene.hidden))) {
        const label = `${name}, ${width} px, ${theme}`;
        await attempt(label, async () => {
          await tab.visit(address);
          await tab.audit(label);
          const { texts, numbers, rows = [] } = expected[name];
          const shown = await tab.text();
          for (const text of texts) check(`${label}: shows ${text}`, text && shown.includes(text), shown);
          for (const number of numbers) check(`${label}: shows ${number}`, hasNumber(shown, number), shown);
          for (const row of rows) {
            const cells = await toolRow(tab, row);
            check(`${label}: counts the calls of ${row.tool}`, cells?.includes(String(row.calls)), cells);
          }
          // Held changes show definitions as they are.
          if (!['changes', 'learning'].includes(name)) {
            check(`${label}: plain words`, !JARGON.test(shown), JARGON.exec(shown)?.[0]);
          }
          if (name === 'session') {
            const isCut = await tab.page.$eval('main .stacked .scroll', (box) => box.scrollWidth > box.clientWidth + 1);
            check(`${label}: the decisions about tools are in sight`, !isCut);
          }
          check(`${label}: has its JSON`, (await tab.page.$('main button.json')) !== null);
          // The pictures of the documentation: one of each kind is enough.
          if (scene.screenshots && (width === 1280) === (theme === 'light')) {
            await tab.page.screenshot({ path: path.join(scene.screenshots, `${name}-${width}-${theme}.webp`), quality: 80 });
          }
        });
      }
    }
  }
  await tab.show(WIDTHS[1], THEMES[0]);
  await attempt('the answers that named tools', async () => {
    await tab.visit(`#/sessions/${enc(scene.session)}?entries=call`);
    const words = await tab.page.$eval('main .timeline', (list) => list.innerText);
    for (const [by, text] of [['search', 'found by a search'], ['other_answer', 'named by riglm']]) {
      const n = detail.timeline.filter((entry) => entry.named_by === by).length;
      check(`${n} calls are "${text}"`, words.split(text).length - 1 === n, words);
    }
  });
  await attempt('the numbers of lists', async () => {
    await tab.visit(`#/sessions/${enc(scene.session)}?entries=list&order=oldest`);
    const shown = await tab.page.$$eval('main .timeline > li', (entries) => entries.map((entry) => /List (\d+) of/.exec(entry.innerText)?.[1]));
    check('lists are numbered without gaps', shown.length > 0 && shown.every((number, i) => Number(number) === i + 1), shown);
  });
  await attempt('the links of clients', async () => {
    // The port of this proxy is chosen at its start.
    const entry = { url: scene.mcp };
    const setup = await api.get('/setup');
    const cursor = setup.clients.find(({ id }) => id === 'cursor');
    check('entries have the address in use', cursor?.entry?.url === entry.url, cursor);
    for (const client of setup.clients) client.entry = null;
    await visitWith(tab, '#/setup', '/setup', setup);
    check('entries without an address are left out', (await tab.page.$('main a[rel=noreferrer]')) === null);
    await tab.audit('the set-up without an address for clients');
    await tab.visit('#/now');
    for (const client of setup.clients) client.entry = entry;
    await visitWith(tab, '#/setup', '/setup', setup);
    const links = await tab.page.$$eval('main a[rel=noreferrer]', (all) => all.map((link) => link.href));
    const config = (start) => new URL(links.find((link) => link.startsWith(start)) ?? 'none:').searchParams.get('config') ?? '';
    const text = JSON.stringify(entry);
    check('the link of Cursor has the entry', atob(config('https://cursor.com/en/install-mcp?name=riglm&')) === text, links);
    check('the link of LM Studio has the entry', atob(config('lmstudio://add_mcp?name=riglm&')) === text, links);
    check('the link of Kiro has the entry', config('https://kiro.dev/launch/mcp/add?name=riglm&') === text, links);
    const code = links.find((link) => link.startsWith('vscode:mcp/install?')) ?? '';
    const named = decodeURIComponent(code.split('?')[1] ?? '');
    check('the link of VS Code has the entry with its name', named === JSON.stringify({ name: 'riglm', ...entry }), named);
    check('there are no other links to elsewhere', links.length === 4, links);
    check('the address for clients is shown', (await tab.text()).includes(entry.url));
    check('the address for clients can be copied', await tab.click([`Copy ${entry.url}`], 'main'));
    await tab.audit('the set-up with links of clients');
  });
  await attempt('the reason of an upstream', async () => {
    const answer = await api.get('/upstreams');
    const reason = 'The server said: riglm service uninstall';
    Object.assign(answer.upstreams[0], { state: 'unavailable', reason });
    // The screen is the same address as before.
    await tab.visit('#/now');
    await visitWith(tab, '#/setup', '/upstreams', answer);
    const shown = await tab.text();
    check('the reason of an upstream is shown', shown.includes(reason), shown);
    const commands = await tab.page.$$eval('main code', (all) => all.map((code) => code.innerText));
    check('the text of a server is no command to copy', !commands.some((line) => line.includes('service uninstall')), commands);
  });
  await attempt('JSON', async () => {
    await tab.visit('#/tools');
    await tab.click(['JSON'], 'main');
    const json = await tab.page.waitForSelector('dialog[open] pre');
    await eventually('the button JSON shows the answer', () => json.evaluate((node) => node.textContent.includes('"tools"')));
    await tab.page.keyboard.press('Escape');
    await eventually('Escape closes the dialog', async () => (await tab.page.$('dialog[open]')) === null);
  });
  await attempt('keyboard', async () => {
    await tab.visit('#/now');
    // In a new document, the focus begins at the top.
    await tab.page.reload({ waitUntil: 'domcontentloaded' });
    await tab.settled();
    await tab.page.keyboard.press('Tab');
    check('the first key leads to the skip link', await tab.page.evaluate(() => document.activeElement.matches('.skip')));
    const reached = new Set();
    for (let n = 0; n < 30; n += 1) {
      await tab.page.keyboard.press('Tab');
      const [name, isVisible] = await tab.page.evaluate(() => {
        const { outlineStyle, boxShadow } = getComputedStyle(document.activeElement);
        return [document.activeElement.innerText?.trim(), outlineStyle !== 'none' || boxShadow !== 'none'];
      });
      reached.add(name);
      if (n < 8) check(`the focus on ${name} is visible`, isVisible);
    }
    check('the keyboard reaches the navigation', reached.has('Tools') && reached.has('Set-up'), [...reached]);
  });
  await attempt('an unknown view', async () => {
    await tab.visit('#/nowhere');
    await tab.audit('an unknown view');
    tab.expected = [/404/];
    for (const address of ['#/sessions/nobody', '#/tools/nobody/nothing']) {
      await tab.visit(address);
      const text = await tab.text();
      check(`${address} says that there is no such object`, /no |not |unknown/i.test(text) && text.length > 20, text);
    }
    tab.problems();
  });
}

/** Names, descriptions and reasons of a hostile server and client: shown as text. */
async function hostile(browser) {
  const detail = await playedSession();
  if (!detail) return;
  await api.post('/override', { tool: scene.hidden.tool, action: 'pin', scope: { kind: 'global' }, reason: scene.markup });
  const { tools } = await api.get('/tools?limit=1000');
  const evil = tools.filter(({ upstream }) => upstream === scene.hidden.upstream);
  check('the hostile tools are known', evil.length >= scene.known, evil.map(({ tool }) => tool.slice(0, 60)));
  const tab = await Tab.open(browser, scene.origin);
  await tab.signIn(scene.token);
  const common = screens(scene.session, scene.hidden);
  const addresses = [...Object.entries(common), ...evil.map((tool) => [`tool ${JSON.stringify(tool.tool.slice(0, 30))}`, toolAddress(tool)])];
  for (const width of WIDTHS) {
    await tab.show(width, THEMES[0]);
    for (const [name, address] of addresses) {
      const label = `hostile texts in ${name}, ${width} px`;
      await attempt(label, async () => {
        await tab.visit(address);
        await tab.audit(label);
        const injected = await tab.page.evaluate(() => {
          const selector = 'img, iframe, object, embed, form[action], base, meta[http-equiv], body style, [onerror], [onload], [onclick], script:not([src^="/page/"])';
          const scripts = [...document.querySelectorAll('a[href]')].filter((link) => /^\s*javascript:/i.test(link.getAttribute('href')));
          return [...document.querySelectorAll(selector), ...scripts].map((node) => node.outerHTML.slice(0, 200));
        });
        check(`${label}: nothing is injected`, injected.length === 0, injected);
      });
    }
  }
  await attempt('hostile texts are readable', async () => {
    for (const address of [common.tools, common.tool, common.changes]) {
      await tab.visit(address);
      const text = await tab.text();
      check(`${address.slice(0, 40)} shows the markup`, text.includes('<img src=x'), text);
    }
  });
}

/** An open page follows the proxy: a call, and a restart. */
async function live(browser) {
  if (!(await playedSession())) return;
  const tab = await Tab.open(browser, scene.origin);
  const status = () => tab.page.$eval('#live', (node) => node.innerText.trim());
  const mark = () => tab.page.evaluate(() => { window.isSameDocument = true; });
  const isSame = () => tab.page.evaluate(() => window.isSameDocument === true);
  const callsOf = async () => Number((await api.get('/tools?limit=1000')).tools
    .find(({ upstream, tool }) => upstream === scene.other.upstream && tool === scene.other.tool)?.calls);
  const isCounted = async (calls) => (await toolRow(tab, scene.other))?.includes(String(calls));
  await tab.signIn(scene.token, '#/tools');
  await eventually('an open page is live', async () => /^live$/i.test(await status()));

  await attempt('a call while the page is open', async () => {
    await mark();
    const before = await callsOf();
    await ask({ call: scene.other });
    const started = Date.now();
    await eventually('a call appears in the tools', () => isCounted(before + 1), LIVE_PATIENCE);
    measure('seconds until a call is shown', (Date.now() - started) / 1_000);
    check('a call appears without a reload', await isSame());
  });
  await attempt('a call in an open session', async () => {
    await tab.visit(`#/sessions/${enc(scene.session)}`);
    await mark();
    const count = () => tab.page.$$eval('main .timeline > li', (entries, tool) => entries.filter((entry) => entry.innerText.includes(tool)).length, scene.other.tool);
    const before = await count();
    await ask({ call: scene.other });
    await eventually('a call appears in the session', async () => (await count()) > before, LIVE_PATIENCE);
    check('the session is followed without a reload', await isSame());
  });
  await attempt('the screen of now', async () => {
    await tab.visit('#/now');
    await mark();
    const shown = () => tab.page.$$eval('main .cards .card', (cards) => cards
      .find((card) => card.querySelector('h2')?.textContent === 'Calls')?.querySelector('.big')?.textContent);
    // riglm keeps the overview for some seconds, and so may not have counted the last call yet.
    await sleep(OVERVIEW_AGE);
    const before = (await api.get('/overview?days=1')).totals.calls;
    check('the overview counts calls', before > 0 && before < 900, before);
    await ask({ call: scene.other });
    await eventually('now has the call', async () => (await shown()) === String(before + 1), LIVE_PATIENCE);
    check('now is followed without a reload', await isSame());
    await tab.audit('now, live');
  });
  await attempt('a restart of the proxy', async () => {
    await tab.visit('#/tools');
    await mark();
    // The browser itself reports refused connections.
    tab.expected = [/ERR_|Failed to (load|fetch)|network error/i];
    await ask('stop');
    await eventually('a lost connection is shown', async () => /reconnect/i.test(await status()));
    check('the data stay in sight', (await tab.text()).includes(scene.other.tool));
    await sleep(1_500);
    await ask('start');
    await eventually('the connection comes back', async () => /^live$/i.test(await status()), LIVE_PATIENCE);
    tab.expected = [];
    const before = await eventually('the tools are stored', callsOf);
    await ask({ call: scene.other });
    await eventually('a call after the restart appears', () => isCounted(before + 1), LIVE_PATIENCE);
    check('the restart needs no reload', await isSame());
    await tab.audit('tools, after a restart');
  });
}

/** Writes: refused for a token that may only read; an override; an approval. */
async function decisions(browser) {
  const detail = await playedSession();
  if (!detail) return;
  const writes = ['Pin', 'Include', 'Exclude', 'Forbid', 'Decide', 'Save the decision', 'Approve', 'Remove'];
  await attempt('a token that may only read', async () => {
    const tab = await Tab.open(browser, scene.origin);
    await tab.signIn(scene.reader);
    for (const address of [`#/sessions/${enc(scene.session)}`, toolAddress(scene.hidden), '#/changes']) {
      await tab.visit(address);
      const enabled = await tab.page.$$eval('main button:not([disabled]):not([aria-disabled=true])', (buttons, writes) => buttons
        .map((button) => (button.getAttribute('aria-label') ?? button.innerText).trim())
        .filter((name) => writes.some((word) => name.startsWith(word))), writes);
      check(`${address}: a reader cannot write`, enabled.length === 0, enabled);
      const reasons = await tab.page.$eval('main', (main) => main.innerText
        + [...main.querySelectorAll('[title]')].map((node) => node.title).join('\n'));
      check(`${address}: the missing scope is named`, /scope/.test(reasons) && /override/.test(reasons), reasons);
      await tab.audit(`${address}, for a reader`);
    }
  });
  const tab = await Tab.open(browser, scene.origin);
  const overridesOf = async (action) => (await api.get('/overrides')).overrides
    .filter((one) => one.action === action && one.tool.endsWith(scene.hidden.tool));
  await tab.signIn(scene.token);
  await attempt('two clicks on a decision', async () => {
    await tab.visit(toolAddress(scene.hidden));
    await tab.page.$$eval('main button', (buttons) => {
      const decide = buttons.find((button) => button.innerText.trim().startsWith('Decide'));
      decide.click();
      decide.click();
    });
    await tab.page.waitForSelector('dialog[open] form');
    await tab.settled();
    check('two clicks open one dialog', (await tab.page.$$('dialog[open]')).length === 1);
    await tab.page.keyboard.press('Escape');
    await eventually('Escape closes the dialog', async () => (await tab.page.$('dialog[open]')) === null);
  });
  await attempt('an override on the screen of a tool', async () => {
    await tab.visit(toolAddress(scene.hidden));
    check('a tool offers to decide', await tab.click(['Decide'], 'main'));
    await tab.page.waitForSelector('dialog[open] form');
    await tab.audit('the dialog of a decision');
    check('the versions of clients are explained', /version/.test(await tab.page.$eval('dialog[open]', (dialog) => dialog.innerText)));
    await tab.confirm(['Save the decision']);
    const made = await eventually('the control API has the override', async () => (await overridesOf('pin'))[0]);
    check('the override is for all clients', made?.scope.kind === 'global', made);
    await eventually('the override is shown', async () => /pin\s+for all clients/i.test(await tab.text()));
    await tab.audit('a tool with an override');
    check('an override can be removed', await tab.click(['Remove'], 'main'));
    await tab.confirm(['Remove']);
    await eventually('the override is gone', async () => (await overridesOf('pin')).length === 0);
  });
  await attempt('an override on the screen of a session', async () => {
    await tab.visit(`#/sessions/${enc(scene.session)}`);
    check('the hidden tools can be shown alone', await tab.click(['Hidden'], 'main'));
    check('a session offers to pin tools', await tab.click(['Pin'], 'main'));
    await tab.confirm(['Save']);
    const made = await eventually('the control API has the pin', async () => (await api.get('/overrides')).overrides.find(({ action }) => action === 'pin'));
    check('the pin is for this session', made?.scope.kind === 'session', made);
    // The client has not asked for another list.
    await eventually('the pin is not shown as part of the list', async () => {
      const text = await tab.text();
      return text.includes('from the next list on') && text.includes('listed in the next list');
    });
    await tab.audit('a session with a pin');
  });
  await attempt('a decision for the client of a work session', async () => {
    const { work_sessions: [work], client_id: client } = detail.session;
    await api.post('/override', { tool: scene.hidden.tool, action: 'include', scope: { kind: 'client', id: client } });
    await tab.visit(`#/sessions/${enc(work)}`);
    const shown = await tab.text();
    check('a work session names its client', shown.includes(`for the client ${scene.client}`), shown);
  });
  await attempt('the approval of a held change', async () => {
    await tab.visit('#/changes');
    check('a held change can be approved', await tab.click(['Approve'], 'main'));
    await tab.confirm(['Approve']);
    await eventually('the change is approved', async () => (await api.get(`/upstreams/${enc(scene.holding)}/held`)).held.length < scene.held);
    await eventually('approved changes leave the screen', async () => {
      const { held } = await api.get(`/upstreams/${enc(scene.holding)}/held`);
      const names = await tab.page.$$eval('main details', (all) => all.length);
      return names === held.length;
    });
    await tab.audit('held changes, after an approval');
  });
}

/** A new proxy: every screen says what to do next. Also with `recording.mode = "off"`. */
async function nothingYet(browser) {
  const tab = await Tab.open(browser, scene.origin);
  // Without stored rows some requests are answered with 409, and unknown sessions with 404.
  tab.expected = [/status of (404|409)/];
  await tab.signIn(scene.token);
  for (const width of WIDTHS) {
    await tab.show(width, THEMES[width === WIDTHS[0] ? 1 : 0]);
    for (const [name, address] of Object.entries(screens('none', scene.hidden))) {
      const label = `${name} without data, ${width} px`;
      await attempt(label, async () => {
        await tab.visit(address);
        if (name !== 'session') await tab.audit(label);
        const text = await tab.text();
        check(`${label}: says why`, text.length > 60, text);
      });
    }
  }
}

/** Returns the bytes of the answer to a request as they are on the wire, without its head. */
function transferred(address) {
  return new Promise((resolve, reject) => {
    const request = http.get(address, { headers: { 'accept-encoding': 'gzip' }, timeout: PATIENCE }, (response) => {
      let bytes = 0;
      response.on('data', (chunk) => { bytes += chunk.length; });
      response.on('end', () => resolve({ bytes, status: response.statusCode, encoding: response.headers['content-encoding'] }));
      response.on('error', reject);
    });
    request.on('timeout', () => request.destroy(new Error(`${address} took too long`)));
    request.on('error', reject);
  });
}

/** Sizes, requests and times, with many tools. */
async function budgets(browser) {
  await eventually('the tools are known', async () => (await api.get('/tools?limit=1')).tools.length > 0);
  const tab = await Tab.open(browser, scene.origin);
  await attempt('all files', async () => {
    await tab.signIn(scene.token);
    for (const address of Object.values(screens('none', scene.hidden))) await tab.visit(address);
    tab.problems();
    const isFile = (address) => /^\/(page\/[\w.-]+)?$/.test(new URL(address).pathname);
    const files = [...new Set(tab.requests.map(({ address }) => address.split('#')[0]).filter(isFile))];
    check('the screens have modules of their own', files.length > 12, files);
    const sizes = await Promise.all(files.map(transferred));
    const total = sizes.reduce((sum, { bytes }) => sum + bytes, 0);
    measure('bytes of all files', total);
    measure('number of files', files.length);
    check('all files have at most 95 KB', total <= 95_000, total);
    check('all files are there', sizes.every(({ status }) => status === 200), sizes);
    check('texts are compressed', sizes.filter(({ encoding }) => encoding === 'gzip').length > 12, sizes);
  });
  const paint = (page) => page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  await attempt('the first paint', async () => {
    const blocked = await Tab.open(browser, scene.origin);
    await blocked.page.setRequestInterception(true);
    blocked.page.on('request', (request) => {
      if (new URL(request.url()).pathname === '/') request.continue();
      else request.abort();
    });
    await blocked.page.goto(scene.origin, { waitUntil: 'domcontentloaded' });
    await eventually('the first paint needs one request', () => paint(blocked.page));
    const styled = await blocked.page.evaluate(() => getComputedStyle(document.querySelector('header')).display);
    check('the first paint has the styles', styled === 'flex', styled);
  });
  await attempt('many tools', async () => {
    const { tools, next_cursor: next } = await api.get('/tools?limit=1000');
    check('there are 1,000 tools', tools.length === 1_000 || next !== null, tools.length);
    await tab.page.evaluateOnNewDocument(() => {
      new MutationObserver((_, observer) => {
        if (document.querySelector('main .screen .table-box tbody tr')) {
          window.rowsAt = performance.now();
          observer.disconnect();
        }
      }).observe(document, { childList: true, subtree: true });
    });
    await tab.page.goto('about:blank');
    await tab.page.goto(`${scene.origin}/#/tools`, { waitUntil: 'domcontentloaded' });
    await tab.settled();
    measure('ms to the first paint', await paint(tab.page));
    measure('ms until the table of 1,000 tools is there', await tab.page.evaluate(() => window.rowsAt));
    const rows = () => tab.page.$$eval('main .table-box tbody tr:not(.spacer)', (all) => all.length);
    const n = await rows();
    check('only the visible rows are rendered', n > 5 && n < 200, n);
    const took = await tab.page.evaluate(async () => {
      const field = document.querySelector('main input[type=search]');
      const started = performance.now();
      field.value = 'tool-999';
      field.dispatchEvent(new Event('input', { bubbles: true }));
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      return performance.now() - started;
    });
    measure('ms to filter 1,000 tools', took);
    await eventually('a filter finds a tool', async () => (await rows()) === 1);
    await tab.audit('1,000 tools, filtered');
    await tab.visit('#/tools');
    await tab.page.$eval('main .scroll.virtual', (box) => { box.scrollTop = box.scrollHeight; });
    await eventually('the last tool can be scrolled to', async () => (await tab.text()).includes('tool-999'));
    measure('ms to show 1,000 tools again', await tab.page.evaluate(async () => {
      const started = performance.now();
      document.querySelector('main .table-box thead button').click();
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      return performance.now() - started;
    }));
    for (const width of WIDTHS) {
      await tab.show(width, THEMES[0]);
      for (const address of ['#/now', '#/tools', '#/setup']) {
        await tab.visit(address);
        await tab.audit(`${address} with 1,000 tools, ${width} px`);
      }
    }
  });
}

const PARTS = { signIn, allScreens, hostile, live, decisions, nothingYet, budgets };

await attempt(scene.part, () => withBrowser(scene.profile, PARTS[scene.part]));
await finish();
process.exit(0);
