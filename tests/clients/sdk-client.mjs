// A session of the official TypeScript SDK with the server of the npm package
// server-everything. Arguments: `stdio COMMAND ARGS..`, `http URL` or `sse URL`. Prints what it
// saw as one JSON object.
import { createRequire } from 'node:module';
import path from 'node:path';

const require = createRequire(path.join(process.env.RIGLM_TEST_CLIENTS, 'index.js'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const [kind, target, ...rest] = process.argv.slice(2);
const transport = {
  stdio: () => new StdioClientTransport({ command: target, args: rest, env: process.env }),
  http: () => new StreamableHTTPClientTransport(new URL(target)),
  sse: () => new SSEClientTransport(new URL(target)),
}[kind]();

const capabilities = { sampling: {}, elicitation: { form: {} }, roots: { listChanged: true } };
const client = new Client({ name: 'sdk-client', version: '1.0.0' }, { capabilities });
client.setRequestHandler(types.CreateMessageRequestSchema, async () => ({
  model: 'canned',
  role: 'assistant',
  content: { type: 'text', text: 'a sampled answer' },
}));
client.setRequestHandler(types.ElicitRequestSchema, async () => ({
  action: 'accept',
  content: { name: 'Ada', check: true },
}));
client.setRequestHandler(types.ListRootsRequestSchema, async () => ({
  roots: [{ uri: 'file:///srv/data', name: 'data' }],
}));

const call = async (name, given, options) => {
  const result = await client.callTool({ name, arguments: given }, undefined, options);
  return result.content;
};

await client.connect(transport);
const seen = { server: client.getServerVersion(), capabilities: client.getServerCapabilities() };
seen.tools = (await client.listTools()).tools;
seen.prompts = (await client.listPrompts()).prompts;
seen.resources = (await client.listResources()).resources;
seen.echo = await call('echo', { message: 'héllo' });
seen.structured = await client.callTool({ name: 'get-structured-content', arguments: { location: 'Chicago' } });

const long = 'trigger-long-running-operation';
seen.progress = [];
seen.long = await call(long, { duration: 0.3, steps: 3 }, { onprogress: (step) => seen.progress.push(step) });
// The SDK drops a progress step that it reads in one piece with the answer behind it, with a
// server of any kind; whether that happens to the last step is chance.
seen.progress = seen.progress.slice(0, 2);
seen.sampling = await call('trigger-sampling-request', { prompt: 'p' });
seen.elicitation = await call('trigger-elicitation-request', {});

const stop = new AbortController();
const cancelled = call(long, { duration: 2, steps: 10 }, { signal: stop.signal, onprogress: () => stop.abort('enough') });
seen.cancelled = await cancelled.then(() => 'answered', () => 'cancelled');
seen.after = await call('echo', { message: 'after' });

if (kind === 'http') await transport.terminateSession();
await client.close();
console.log(JSON.stringify(seen));
process.exit(0);
