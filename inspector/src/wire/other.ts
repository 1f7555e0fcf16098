/** Why a version has nothing in the place of an update of the other. */
export function nothingIn(version: number, { sessionUpdate, state }: Readonly<Record<string, unknown>>): string {
  if (version === 1 && sessionUpdate === "state_update") {
    switch (state) {
      case "idle":
        return "Version 1 has no states: that the turn is over is said by the answer to its prompt.";
      case "running":
        return "Version 1 has no states: a turn runs from its prompt to the answer.";
      case "requires_action":
        return "Version 1 has no states: the agent waits for a person as long as its request is open.";
    }
    return "Version 1 has no states.";
  }
  return `Version ${version} has nothing in its place.`;
}
