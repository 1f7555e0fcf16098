import { useId, useRef, useState } from "react";
import { Button, Field, IconButton, Input, Select, TextArea } from "../kit/controls.js";
import { newServer, serversIn, type ServerWish } from "./wishes.js";

/** MCP servers of a new session, each with its fields. They can be taken out of a file's JSON. */
export function McpServers({ servers, error, hint, onChange }: { servers: readonly ServerWish[]; error: string | undefined; /** Why the agent takes none. */ hint: string | undefined; onChange: (servers: readonly ServerWish[]) => void }) {
  const [pasting, paste] = useState<string>();
  const [problem, setProblem] = useState<string>();
  const added = useRef(-1); // the server that was just added: its name is written next
  const errorId = useId();
  const change = (key: number, part: Partial<ServerWish>) => onChange(servers.map((s) => (s.key === key ? { ...s, ...part } : s)));
  const take = () => {
    const read = serversIn(pasting ?? "");
    if (typeof read === "string") return setProblem(read);
    onChange([...servers, ...read]);
    paste(undefined);
  };
  return (
    <fieldset className="mcp" aria-describedby={error ? errorId : undefined}>
      <legend>MCP servers <span className="soft">optional</span></legend>
      {hint && <p className="hint">{hint}</p>}
      {servers.map((server, i) => (
        <McpServer key={server.key} server={server} number={i + 1} begin={server.key === added.current} onChange={(part) => change(server.key, part)} onRemove={() => onChange(servers.filter((s) => s.key !== server.key))} />
      ))}
      {error && <p id={errorId} className="hint bad" role="alert">{error}</p>}
      {pasting !== undefined && (
        <div className="stack">
          <Field label="Servers as JSON" hint="As in a .mcp.json file, or as a list." {...(problem ? { error: problem } : {})}>
            {(props) => <TextArea {...props} autoFocus className="mono" rows={5} placeholder={'{"mcpServers": {"docs": {"command": "docs-server", "args": []}}}'} value={pasting} onChange={(e) => { paste(e.target.value); setProblem(undefined); }} />}
          </Field>
          <div className="row"><Button small disabled={pasting.trim() === ""} onClick={take}>Take over</Button><Button small tone="quiet" onClick={() => paste(undefined)}>Cancel</Button></div>
        </div>
      )}
      <div className="row">
        <Button small icon="plus" onClick={() => {
          const server = newServer();
          added.current = server.key;
          onChange([...servers, server]);
        }}>Add a server</Button>
        {pasting === undefined && <Button small tone="quiet" onClick={() => { paste(""); setProblem(undefined); }}>Paste JSON</Button>}
      </div>
    </fieldset>
  );
}

function McpServer({ server, number, begin, onChange, onRemove }: { server: ServerWish; number: number; begin: boolean; onChange: (part: Partial<ServerWish>) => void; onRemove: () => void }) {
  const called = server.name.trim() || `server ${number}`;
  return (
    <div className="mcp-server stack" role="group" aria-label={`MCP ${called}`}>
      <div className="mcp-head">
        <Field label="Name">{(props) => <Input {...props} autoFocus={begin} value={server.name} onChange={(e) => onChange({ name: e.target.value })} />}</Field>
        <Field label="Kind">
          {(props) => (
            <Select {...props} value={server.kind} onChange={(e) => onChange({ kind: e.target.value as ServerWish["kind"] })}>
              <option value="command">A program</option>
              <option value="http">An address (HTTP)</option>
              <option value="sse">An address (SSE)</option>
            </Select>
          )}
        </Field>
        <IconButton label={`Remove ${called}`} icon="close" onClick={onRemove} />
      </div>
      {server.kind === "command" ? (
        <>
          <Field label="Command" hint="A program on the gateway’s machine.">{(props) => <Input {...props} className="mono" value={server.command} onChange={(e) => onChange({ command: e.target.value })} />}</Field>
          <div className="pair halves">
            <Field label="Arguments" optional hint="One on each line.">{(props) => <TextArea {...props} className="mono" rows={2} value={server.args} onChange={(e) => onChange({ args: e.target.value })} />}</Field>
            <Field label="Variables" optional hint="NAME=VALUE on each line. They are kept with the session.">{(props) => <TextArea {...props} className="mono" rows={2} value={server.env} onChange={(e) => onChange({ env: e.target.value })} />}</Field>
          </div>
        </>
      ) : (
        <>
          <Field label="Address">{(props) => <Input {...props} inputMode="url" className="mono" placeholder="https://example.com/mcp" value={server.url} onChange={(e) => onChange({ url: e.target.value })} />}</Field>
          <Field label="Headers" optional hint="Name: value on each line. They are kept with the session.">{(props) => <TextArea {...props} className="mono" rows={2} value={server.headers} onChange={(e) => onChange({ headers: e.target.value })} />}</Field>
        </>
      )}
    </div>
  );
}
