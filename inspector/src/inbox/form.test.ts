import { expect, test } from "vitest";
import { emptyForm, fieldsOf, formContent, wordsIn } from "./form.js";

const schema = {
  required: ["site"],
  properties: {
    site: { type: "string", format: "uri" },
    mail: { type: "string", format: "email" },
    labels: { type: "array", items: { type: "string", enum: ["a", "b"] } },
    names: { type: "array", items: { type: "string" } },
    settings: { type: "object", properties: { depth: { type: "integer" } } },
  },
};
const fields = fieldsOf(schema);
const filled = (values: Record<string, string | string[]>) => formContent(fields, { ...emptyForm(fields), ...values });

test("an address is looked at", () => {
  expect(filled({}).problems).toEqual({ site: "This is needed." });
  for (const site of ["example.com", "no address", "http:// x"]) expect(Object.keys(filled({ site }).problems), site).toEqual(["site"]);
  for (const site of ["https://example.com/a?b", "mailto:me@example.com", "urn:x:y"]) expect(filled({ site }).content, site).toEqual({ site });
  expect(filled({ site: "urn:x:y", mail: "nobody" }).problems).toEqual({ mail: "This is not an address of mail." });
});

test("objects and lists are sent as what they are, and nothing chosen is nothing", () => {
  const site = "urn:x:y";
  expect(filled({ site }).content).toEqual({ site });
  expect(filled({ site, labels: ["b"], names: '["x", "y"]', settings: '{"depth": 3}' }).content).toEqual({ site, labels: ["b"], names: ["x", "y"], settings: { depth: 3 } });
  expect(Object.keys(filled({ site, names: "{}", settings: "[]" }).problems)).toEqual(["names", "settings"]);
  expect(filled({ site, settings: "{" }).problems.settings).toMatch(/not JSON/);
});

test("what was typed can be said without the form, but for what was there before, chosen, or secret", () => {
  const asked = fieldsOf({ properties: { name: { type: "string", title: "Name", default: "me" }, count: { type: "integer" }, apiKey: { type: "string" }, login: { type: "string", title: "Your password" }, size: { type: "string", enum: ["s", "m"] } } });
  const typed = { ...emptyForm(asked), count: "3", apiKey: "abc", login: "abc", size: "m" };
  expect(wordsIn(asked, typed)).toBe("count: 3");
  expect(wordsIn(asked, { ...typed, name: "you " })).toBe("Name: you\ncount: 3");
});
