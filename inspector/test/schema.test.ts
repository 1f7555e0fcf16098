import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { checked, described, Schema, type SchemaDocument, type Shape } from "../src/wire/schema.js";

const documentOf = (version: 1 | 2) => JSON.parse(readFileSync(resolve(import.meta.dirname, `../../acp/schema/v${version}.unstable.json`), "utf8")) as SchemaDocument;
const schemas = { 1: new Schema(documentOf(1)), 2: new Schema(documentOf(2)) };

const frame = (rest: object) => ({ jsonrpc: "2.0", ...rest });
const update = (update: object) => frame({ method: "session/update", params: { sessionId: "S", update } });
const said = (version: 1 | 2, message: object, { sent = false, answers }: { sent?: boolean; answers?: string } = {}) =>
  schemas[version].check({ message, sent, answers }).map((f) => `${f.wrong ? "wrong" : "new"} ${f.path} ${f.says}`);

test("every keyword of the schemas is known", () => {
  const found = new Set<string>();
  const walk = (shape: Shape) => {
    for (const [key, value] of Object.entries(shape) as [string, unknown][]) {
      found.add(key);
      if (key === "properties" || key === "$defs") for (const one of Object.values(value as Record<string, Shape>)) walk(one);
      else if (Array.isArray(value) && ["anyOf", "oneOf", "allOf"].includes(key)) for (const one of value as Shape[]) walk(one);
      else if (["items", "additionalProperties", "not"].includes(key) && typeof value === "object") walk(value as Shape);
    }
  };
  for (const version of [1, 2] as const) walk(documentOf(version) as Shape);
  expect([...found].filter((key) => !checked.includes(key) && !described.includes(key))).toEqual([]);
});

describe.each([1, 2] as const)("version %i", (version) => {
  test.each<[string, object, { sent?: boolean; answers?: string }?]>([
    ["an update", update({ sessionUpdate: "agent_message_chunk", messageId: "m", content: { type: "text", text: "hi" } })],
    ["members that are newer", update({ sessionUpdate: "agent_message_chunk", messageId: "m", content: { type: "text", text: "hi", colour: "red" }, mood: 1, _meta: { a: 1 } })],
    ["a prompt", frame({ id: 1, method: "session/prompt", params: { sessionId: "S", prompt: [{ type: "text", text: "hi" }] } }), { sent: true }],
    ["an error", frame({ id: 1, error: { code: -32000, message: "no" } })],
    ["an extension", frame({ id: "x", method: "_sandboxagent/anything", params: { a: [] } }), { sent: true }],
    ["an answer to nobody knows what", frame({ id: 9, result: { a: 1 } })],
    ["a cancel of either side", frame({ method: "$/cancel_request", params: { requestId: 3 } })],
  ])("takes %s", (_, message, more) => {
    expect(said(version, message, more)).toEqual([]);
  });

  test.each<[string, object, string[], { sent?: boolean; answers?: string }?]>([
    ["a type", update({ sessionUpdate: "agent_message_chunk", messageId: "m", content: { type: "text", text: 7 } }), ["wrong /params/update/content/text is a number, and has to be a string"]],
    ["what is missing", update({ sessionUpdate: "agent_message_chunk", messageId: "m", content: { type: "text" } }), ["wrong /params/update/content/text is missing"]],
    ["params", frame({ method: "session/update", params: [] }), ["wrong /params is an array, and has to be an object"]],
    ["a direction", frame({ id: 1, method: "session/prompt", params: {} }), ['wrong /method is "session/prompt", which the other side sends']],
    ["a request that is a notification", frame({ id: 1, method: "session/cancel", params: { sessionId: "S" } }), ["wrong /id is there, and this method is a notification"], { sent: true }],
    ["an id that is missing", frame({ method: "session/prompt", params: {} }), ["wrong /id is missing, and this method is a request"], { sent: true }],
    ["an envelope", { id: 1, method: "session/list", params: {} }, ['wrong /jsonrpc is missing, and has to be "2.0"'], { sent: true }],
    ["both ends of an answer", frame({ id: 1, result: {}, error: { code: 1, message: "" } }), ["wrong  has a result and an error"]],
    ["neither", frame({ id: 1 }), ["wrong  has neither a method nor a result nor an error"]],
    ["a result", frame({ id: 1, result: {} }), ["wrong /result/sessionId is missing"], { answers: "session/new" }],
    ["an error", frame({ id: 1, error: { code: "x" } }), ["wrong /error/message is missing", "wrong /error/code is a string, and has to be an integer"]],
  ])("names %s", (_, message, wanted, more) => {
    expect(said(version, message, more)).toEqual(wanted);
  });

  test("what is only newer is legal", () => {
    const newer = [update({ sessionUpdate: "of_tomorrow", x: 1 }), update({ sessionUpdate: "agent_message_chunk", messageId: "m", content: { type: "smell", of: "roses" } }), frame({ id: 1, method: "session/dream", params: {} })];
    for (const message of newer) expect(said(version, message).filter((s) => s.startsWith("wrong"))).toEqual([]);
    expect(said(version, newer[2]!)).toEqual(['new /method is "session/dream", which the schema does not know']);
  });
});

test("values that version 1 does not know are named, and legal", () => {
  expect(said(1, update({ sessionUpdate: "of_tomorrow" }))).toEqual(['new /params/update/sessionUpdate is "of_tomorrow", which the schema does not know']);
  expect(said(1, update({ sessionUpdate: "tool_call", toolCallId: "t", title: "x", kind: "dance" }))).toEqual(['new /params/update/kind is "dance", which the schema does not know']);
  expect(said(1, frame({ id: 1, result: { stopReason: "bored" } }), { answers: "session/prompt" })).toEqual(['new /result/stopReason is "bored", which the schema does not know']);
});

test("a frame with many mistakes names the first twenty", () => {
  const locations = Array.from({ length: 100 }, () => ({ path: 1 }));
  expect(said(1, update({ sessionUpdate: "tool_call", toolCallId: "t", title: "x", locations }))).toHaveLength(20);
});
