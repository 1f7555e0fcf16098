/** What Node.js warns of meanwhile, such as many listeners. */
export async function warnings(work: () => Promise<void>): Promise<string[]> {
  const seen: string[] = [];
  const note = (warning: Error) => void seen.push(warning.message);
  process.on("warning", note);
  await work().finally(() => process.off("warning", note));
  return seen;
}
