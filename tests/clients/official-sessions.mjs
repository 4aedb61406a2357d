// Sessions of the official TypeScript SDK, all begun at once, with the proxy in front of the
// official servers. Arguments: URL, then a word for each session: `full` or `plain` (what the
// client is capable of), a colon, and how it ends: `stay` (when it has seen everything), `delete`
// or `disconnect` (at once). Prints what each saw as one JSON array.
import { createRequire } from 'node:module';
import path from 'node:path';

const require = createRequire(path.join(process.env.RIGLM_TEST_CLIENTS, 'index.js'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const [url, ...words] = process.argv.slice(2);
const CALLS = JSON.parse(process.env.RIGLM_TEST_CALLS);
const LISTS = {
  tools: [types.ToolListChangedNotificationSchema, async (client) => (await client.listTools()).tools],
  prompts: [types.PromptListChangedNotificationSchema, async (client) => (await client.listPrompts()).prompts],
  resources: [types.ResourceListChangedNotificationSchema, async (client) => (await client.listResources()).resources],
};
const FULL = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } };

function connectable(isFull) {
  const capabilities = isFull ? FULL : {};
  const client = new Client({ name: 'official-typescript', version: '1.0.0' }, { capabilities });
  if (isFull) {
    client.setRequestHandler(types.ListRootsRequestSchema, async () => ({ roots: [] }));
  }
  return client;
}

async function lists(client, asked = () => {}) {
  const found = {};
  for (const [kind, [, list]] of Object.entries(LISTS)) {
    asked(kind);
    found[kind] = (await list(client)).map((entry) => entry.name).sort();
  }
  return found;
}

async function session(word) {
  const [capable, end] = word.split(':');
  const client = connectable(capable === 'full');
  const seen = { client: 'typescript', capable, end, told: {}, early: {}, failed: [] };
  const asked = new Set();
  for (const [kind, [schema]] of Object.entries(LISTS)) {
    seen.told[kind] = 0;
    seen.early[kind] = 0;
    client.setNotificationHandler(schema, () => {
      seen.told[kind] += 1;
      if (!asked.has(kind)) seen.early[kind] += 1;
    });
  }
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  if (end !== 'stay') {
    const list = client.listTools().catch(() => {});
    if (end === 'delete') await transport.terminateSession();
    await client.close();
    await list;
    return seen;
  }
  seen.first = await lists(client, (kind) => asked.add(kind));
  for (const [name, given] of CALLS) {
    const result = await client.callTool({ name, arguments: given });
    if (result.isError) seen.failed.push([name, result.content]);
  }
  // Every server has answered by now, and what it had to say of its lists has been passed on.
  seen.last = await lists(client);
  await transport.terminateSession();
  await client.close();
  return seen;
}

const outcomes = await Promise.all(
  words.map((word) => session(word).catch((error) => ({ client: 'typescript', word, error: String(error) }))),
);
console.log(JSON.stringify(outcomes));
process.exit(0);
