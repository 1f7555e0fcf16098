/** Two JSON values as texts of which lines differ where the values do: the second one has its members in the order of the first. */
export function comparable(a: unknown, b: unknown): readonly [string, string] {
  return [text(a), text(inOrderOf(b, a))];
}

const text = (value: unknown) => `${JSON.stringify(value, null, 2) ?? "undefined"}\n`;

function inOrderOf(value: unknown, model: unknown): unknown {
  if (Array.isArray(value)) return value.map((one, i) => inOrderOf(one, Array.isArray(model) ? (model[i] ?? model[0]) : undefined));
  if (typeof value !== "object" || value === null) return value;
  const own = value as Record<string, unknown>;
  const order = typeof model === "object" && model !== null && !Array.isArray(model) ? (model as Record<string, unknown>) : {};
  const names = [...Object.keys(order).filter((name) => name in own), ...Object.keys(own).filter((name) => !(name in order))];
  return Object.fromEntries(names.map((name) => [name, inOrderOf(own[name], order[name])]));
}
