// The server that the conformance suite asks for: its tools, resources and prompts by name, on
// the sessions of revision 2025-11-25. Listens on a free port and prints its address.
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';
import path from 'node:path';

const require = createRequire(path.join(process.env.RIGLM_TEST_CLIENTS, 'index.js'));
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { createMcpExpressApp } = require('@modelcontextprotocol/sdk/server/express.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';

const text = (value) => ({ type: 'text', text: value });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const resource = (uri, mimeType, value) => ({ type: 'resource', resource: { uri, mimeType, text: value } });
const says = (...content) => ({ content });
const pause = () => new Promise((resolve) => setTimeout(resolve, 30));
const choices = (prefix, word) =>
  [1, 2, 3].map((n) => ({ const: `${prefix}${n}`, title: `${word} ${n}` }));

const FORMS = {
  test_elicitation_sep1034_defaults: {
    name: { type: 'string', default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true },
  },
  test_elicitation_sep1330_enums: {
    untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
    titledSingle: { type: 'string', oneOf: choices('value', 'Choice') },
    legacyEnum: {
      type: 'string',
      enum: ['opt1', 'opt2', 'opt3'],
      enumNames: ['Option One', 'Option Two', 'Option Three'],
    },
    untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
    titledMulti: { type: 'array', items: { anyOf: choices('value', 'Choice') } },
  },
};

async function elicit(extra, message, properties, required = []) {
  const requestedSchema = { type: 'object', properties, required };
  const params = { mode: 'form', message, requestedSchema };
  const answer = await extra.sendRequest({ method: 'elicitation/create', params }, types.ElicitResultSchema);
  return `action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`;
}

const TOOLS = {
  test_simple_text: async () => says(text('This is a simple text response for testing.')),
  test_image_content: async () => says(image),
  test_audio_content: async () => says({ type: 'audio', data: WAV, mimeType: 'audio/wav' }),
  test_embedded_resource: async () =>
    says(resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')),
  test_multiple_content_types: async () =>
    says(text('Multiple content types test:'), image, resource('test://mixed-content-resource', 'application/json', '{"test":"data"}')),
  test_tool_with_logging: async (_, extra) => {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
      await pause();
    }
    return says(text('logged'));
  },
  test_tool_with_progress: async (_, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
      const params = { progressToken, progress, total: 100, message: `${progress} of 100` };
      await extra.sendNotification({ method: 'notifications/progress', params });
      await pause();
    }
    return says(text(String(progressToken)));
  },
  test_error_handling: async () => ({
    isError: true,
    ...says(text('This tool intentionally returns an error for testing')),
  }),
  test_sampling: async ({ prompt }, extra) => {
    const params = { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 };
    const answer = await extra.sendRequest({ method: 'sampling/createMessage', params }, types.CreateMessageResultSchema);
    return says(text(`LLM response: ${answer.content.text}`));
  },
  test_elicitation: async ({ message }, extra) => {
    const answer = await elicit(extra, message, { response: { type: 'string' } }, ['response']);
    return says(text(`User response: ${answer}`));
  },
  test_elicitation_sep1034_defaults: async (_, extra) =>
    says(text(`Elicitation completed: ${await elicit(extra, 'Review the defaults', FORMS.test_elicitation_sep1034_defaults)}`)),
  test_elicitation_sep1330_enums: async (_, extra) =>
    says(text(`Elicitation completed: ${await elicit(extra, 'Choose', FORMS.test_elicitation_sep1330_enums)}`)),
  test_reconnection: async (_, extra) => {
    extra.closeSSEStream?.();
    await new Promise((resolve) => setTimeout(resolve, 100));
    return says(text('Reconnection test completed successfully.'));
  },
};

TOOLS.json_schema_2020_12_tool = async (given) => says(text(JSON.stringify(given)));

const SCHEMA_2020_12 = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: { type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } },
  },
  properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' } },
  additionalProperties: false,
};

const ARGUMENTS = { test_sampling: 'prompt', test_elicitation: 'message' };
const inputSchema = (name) => {
  if (name === 'json_schema_2020_12_tool') return SCHEMA_2020_12;
  const argument = ARGUMENTS[name];
  return argument
    ? { type: 'object', properties: { [argument]: { type: 'string' } }, required: [argument] }
    : { type: 'object', properties: {} };
};

const RESOURCES = [
  { uri: 'test://static-text', name: 'static-text', mimeType: 'text/plain', body: { text: 'This is the content of the static text resource.' } },
  { uri: 'test://static-binary', name: 'static-binary', mimeType: 'image/png', body: { blob: PNG } },
  { uri: 'test://watched-resource', name: 'watched-resource', mimeType: 'text/plain', body: { text: 'Watched resource content' } },
];

const user = (content) => ({ role: 'user', content });
const PROMPTS = {
  test_simple_prompt: [[], () => [user(text('This is a simple prompt for testing.'))]],
  test_prompt_with_arguments: [
    ['arg1', 'arg2'],
    ({ arg1, arg2 }) => [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))],
  ],
  test_prompt_with_embedded_resource: [
    ['resourceUri'],
    ({ resourceUri }) => [
      user(resource(resourceUri, 'text/plain', 'Embedded resource content for testing.')),
      user(text('Please process the embedded resource above.')),
    ],
  ],
  test_prompt_with_image: [[], () => [user(image), user(text('Please analyze the image above.'))]],
};

function createServer() {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {},
  };
  const server = new Server({ name: 'conformance-fixture', version: '1.0.0' }, { capabilities });
  const on = (schema, handler) => server.setRequestHandler(schema, handler);
  on(types.ListToolsRequestSchema, async () => ({
    tools: Object.keys(TOOLS).map((name) => ({ name, description: `Tests ${name}`, inputSchema: inputSchema(name) })),
  }));
  on(types.CallToolRequestSchema, async ({ params }, extra) => {
    const tool = TOOLS[params.name];
    if (!tool) throw new types.McpError(types.ErrorCode.InvalidParams, `Unknown tool: ${params.name}`);
    return tool(params.arguments ?? {}, extra);
  });
  on(types.ListResourcesRequestSchema, async () => ({
    resources: RESOURCES.map(({ body, ...listed }) => listed),
  }));
  on(types.ListResourceTemplatesRequestSchema, async () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }],
  }));
  on(types.ReadResourceRequestSchema, async ({ params: { uri } }) => {
    const listed = RESOURCES.find((one) => one.uri === uri);
    if (listed) return { contents: [{ uri, mimeType: listed.mimeType, ...listed.body }] };
    const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
    if (id === undefined) throw new types.McpError(-32002, 'Resource not found', { uri });
    const value = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { contents: [{ uri, mimeType: 'application/json', text: value }] };
  });
  on(types.SubscribeRequestSchema, async () => ({}));
  on(types.UnsubscribeRequestSchema, async () => ({}));
  on(types.ListPromptsRequestSchema, async () => ({
    prompts: Object.entries(PROMPTS).map(([name, [names]]) => ({
      name,
      description: `Tests ${name}`,
      arguments: names.map((argument) => ({ name: argument, required: true })),
    })),
  }));
  on(types.GetPromptRequestSchema, async ({ params }) => {
    const prompt = PROMPTS[params.name];
    if (!prompt) throw new types.McpError(types.ErrorCode.InvalidParams, `Unknown prompt: ${params.name}`);
    return { messages: prompt[1](params.arguments ?? {}) };
  });
  on(types.SetLevelRequestSchema, async () => ({}));
  on(types.CompleteRequestSchema, async () => ({ completion: { values: [], total: 0, hasMore: false } }));
  return server;
}

/** Keeps the events of a session in order, so that a broken stream can be taken up again. */
class Events {
  events = [];
  async storeEvent(streamId, message) {
    this.events.push({ streamId, message });
    return String(this.events.length - 1);
  }
  async getStreamIdForEventId(eventId) {
    return this.events[Number(eventId)]?.streamId;
  }
  async replayEventsAfter(lastEventId, { send }) {
    const streamId = this.events[Number(lastEventId)]?.streamId;
    for (const [n, event] of this.events.entries()) {
      const isLater = n > Number(lastEventId) && event.streamId === streamId;
      if (isLater && Object.keys(event.message).length > 0) await send(String(n), event.message);
    }
    return streamId;
  }
}

const sessions = new Map();
const app = createMcpExpressApp();

app.all('/mcp', async (request, response) => {
  const id = request.headers['mcp-session-id'];
  let transport = sessions.get(id);
  if (!transport && id === undefined && request.body?.method === 'initialize') {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      eventStore: new Events(),
      retryInterval: 500,
      onsessioninitialized: (created) => sessions.set(created, transport),
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await createServer().connect(transport);
  }
  if (!transport) {
    const error = { code: -32001, message: 'Session not found' };
    response.status(id === undefined ? 400 : 404).json({ jsonrpc: '2.0', error, id: null });
    return;
  }
  await transport.handleRequest(request, response, request.body);
});

const listener = app.listen(0, '127.0.0.1', () => {
  console.error(`listening on http://127.0.0.1:${listener.address().port}/mcp`);
});
