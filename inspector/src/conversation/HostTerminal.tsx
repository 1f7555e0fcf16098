import { ProblemError } from "sandbox-agent";
import { useLoad } from "../kit/load.js";
import { gateway } from "../state/page.js";
import { Output } from "./Output.js";

const decoder = new TextDecoder();

/** A terminal in which an agent runs something: one of the gateway's programs, or one of another client. */
export function HostTerminal({ id }: { id: string }) {
  const { value, busy } = useLoad(async (signal) => {
    const process = await gateway.machine.processes.get(id, { signal }).catch((error: unknown) => {
      if (error instanceof ProblemError && error.status === 404) return undefined;
      throw error;
    });
    if (!process) return { process, text: "" };
    const { chunks } = await gateway.machine.processes.logs(id, {}, { signal });
    return { process, text: chunks.map((c) => decoder.decode(c.data, { stream: true })).join("") };
  }, [id], 2000);
  if (!value) return <p className="soft small" role="status">{busy ? "Looking at the terminal\u2026" : "The terminal cannot be looked at."}</p>;
  if (!value.process) return <p className="soft small">It ran in the terminal {id}, which another client has, or which was let go.</p>;
  return (
    <>
      {value.text !== "" && <Output text={value.text} />}
      <p className="row small"><span className="soft">{value.process.state === "running" ? "Runs in a terminal of the gateway." : "Has ended."}</span> </p>
    </>
  );
}
