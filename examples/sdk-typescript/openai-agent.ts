// An agent on the OpenAI SDK whose tools come from riglm.
//
//     npm install openai tsx
//     OPENAI_API_KEY=... npx tsx openai-agent.ts "What changed in the last release?"
//
// RIGLM_URL and RIGLM_KEY name the proxy and a key of [auth.keys]; MODEL names the model, gpt-5.4 or
// later.

import OpenAI from "openai";
import { Riglm } from "./riglm.ts";

const MAX_TURNS = 20;
const CALLS = ["function_call", "tool_search_call"];

async function answer(task: string): Promise<string> {
  const riglm = new Riglm("openai");
  const client = new OpenAI();
  const items: OpenAI.Responses.ResponseInputItem[] = [{ role: "user", content: task }];
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const response = await client.responses.create({
      model: process.env.MODEL ?? "gpt-5.4",
      tools: await riglm.tools<OpenAI.Responses.Tool>(task),
      input: items,
    });
    const output = response.output as OpenAI.Responses.ResponseInputItem[];
    items.push(...output);
    if (!response.output.some((item) => CALLS.includes(item.type))) {
      return response.output_text;
    }
    // Searches and calls alike: riglm knows which is which.
    items.push(...(await riglm.call<OpenAI.Responses.ResponseInputItem>(output)));
  }
  throw new Error(`no answer after ${MAX_TURNS} turns`);
}

answer(process.argv[2]).then(console.log, (error) => {
  console.error(error);
  process.exitCode = 1;
});
