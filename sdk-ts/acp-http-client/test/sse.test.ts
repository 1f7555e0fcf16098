import { expect, test } from "vitest";
import { EventDecoder, type ServerEvent } from "../src/sse.js";

const text = "\uFEFFid: 1\ndata: one\n\n: a comment\r\nevent: named\r\nid: 2\r\ndata: two\r\ndata:  and more\r\n\r\nid\rdata: three\r\rdata\n\r\ndata: é€😀\n\ndata: is not over";

const events: ServerEvent[] = [
  { id: "1", event: "message", data: "one" },
  { id: "2", event: "named", data: "two\n and more" },
  { id: "", event: "message", data: "three" },
  { id: "", event: "message", data: "" },
  { id: "", event: "message", data: "é€😀" },
];

test("events are the same in whichever pieces they come", () => {
  const bytes = new TextEncoder().encode(text);
  for (let first = 0; first <= bytes.length; first++) {
    for (let second = first; second <= bytes.length; second++) {
      const decoder = new EventDecoder(100);
      const got = [bytes.subarray(0, first), bytes.subarray(first, second), bytes.subarray(second)].flatMap((piece) => decoder.push(piece));
      expect(got, `cut at ${first} and ${second}`).toEqual(events);
    }
  }
});

test.each(["data: " + "x".repeat(200), "data: x\n".repeat(101), "data: " + "x".repeat(60) + "\ndata: " + "x".repeat(60)])("an event over the limit is refused: %.30s", (large) => {
  for (const size of [1, 7, 1000]) {
    const decoder = new EventDecoder(100);
    const bytes = new TextEncoder().encode(large);
    expect(() => {
      for (let at = 0; at < bytes.length; at += size) decoder.push(bytes.subarray(at, at + size));
    }).toThrow("an event is larger than 100 characters");
  }
});
