import { Store } from "./store.js";

class Count extends Store<number> {
  constructor() {
    super(0);
  }

  change(n: number): void {
    this.set(n);
  }
}

/** What agents ask the person, in all sessions. */
export class Inbox {
  readonly count = new Count();
}
