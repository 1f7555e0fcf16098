import { Button } from "../kit/controls.js";
import { Spinner } from "../kit/controls.js";
import { gateway, router } from "../state/page.js";
import { useStore } from "../state/store.js";

/** Says when the gateway cannot be reached; otherwise it takes no room. */
export function ConnectionBar() {
  const { phase, problem } = useStore(gateway);
  if (phase === "reconnecting") {
    return (
      <div className="connection-bar warn" role="status">
        <span><Spinner /> The connection is broken. Trying again. If the gateway still runs, so do turns; if it has stopped, they have ended.</span>
        <Button small tone="quiet" onClick={() => router.go("connect")}>Details</Button>
      </div>
    );
  }
  if (phase === "failed") {
    return (
      <div className="connection-bar bad" role="alert">
        <span>
          <strong>{problem?.title ?? "Not connected"}.</strong> {problem?.detail}
        </span>
        <span className="row">
          {problem?.kind !== "token" && <Button small onClick={() => void gateway.connect()}>Connect again</Button>}
          <Button small tone="quiet" onClick={() => router.go("connect")}>{problem?.kind === "token" ? "Give another token" : "Details"}</Button>
        </span>
      </div>
    );
  }
  return null;
}
