// An agent on the Anthropic SDK whose tools come from riglm.
//
//     npm install @anthropic-ai/sdk tsx
//     ANTHROPIC_API_KEY=... npx tsx anthropic-agent.ts "What changed in the last release?"
//
// RIGLM_URL and RIGLM_KEY name the proxy and a key of [auth.keys]; MODEL names the model.

import Anthropic from "@anthropic-ai/sdk";
import { Riglm } from "./riglm.ts";

const MAX_TURNS = 20;

async function answer(task: string): Promise<string> {
  const riglm = new Riglm("anthropic");
  const client = new Anthropic();
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: task }];
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const response = await client.messages.create({
      model: process.env.MODEL ?? "claude-sonnet-4-5",
      max_tokens: 4096,
      tools: await riglm.tools<Anthropic.ToolUnion>(task),
      messages,
    });
    messages.push({ role: "assistant", content: response.content });
    if (response.stop_reason !== "tool_use") {
      return response.content.map((block) => (block.type === "text" ? block.text : "")).join("");
    }
    // Searches and calls alike: riglm knows which is which.
    const results = await riglm.call<Anthropic.ToolResultBlockParam>(response.content);
    messages.push({ role: "user", content: results });
  }
  throw new Error(`no answer after ${MAX_TURNS} turns`);
}

answer(process.argv[2]).then(console.log, (error) => {
  console.error(error);
  process.exitCode = 1;
});
