import type { SessionMcpServer } from "sandbox-agent";
import { CopyButton } from "../kit/controls.js";
import { Badge } from "../kit/show.js";
import { plural } from "../kit/text.js";
import { hrefOfFile } from "../state/router.js";
import { useStore } from "../state/store.js";
import type { Conversation } from "./conversation.js";
import { serverHint, serverState } from "./servers.js";

/** What the texts for the agent were given as. */
const fields: Record<string, string> = { instructions: "Instructions", appendSystemPrompt: "Added to the system prompt", systemPrompt: "System prompt" };

/** What the session has of MCP servers, instructions and skills. */
export function Given({ conversation, agent }: { conversation: Conversation; /** Its name. */ agent: string }) {
  const { given } = useStore(conversation);
  if (!given) return <p className="soft" role="status">Asking for its MCP servers…</p>;
  const { servers, instructions, skills } = given;
  return (
    <>
      <h3>MCP servers</h3>
      {servers.length === 0 ? <p className="soft">The session was given none, and {agent} tells of none.</p> : (
        <ul className="mcp-list" aria-label="MCP servers">
          {servers.map((one) => <Server key={`${one.source} ${one.name}`} server={one} agent={agent} />)}
        </ul>
      )}
      {(instructions.length > 0 || skills.length > 0) && <h3>Instructions and skills</h3>}
      {instructions.map((one) => (
        <details key={one.field} className="given-text">
          <summary>{fields[one.field] ?? one.field} <span className="soft small">{plural(one.text.length, "character")}</span></summary>
          <pre tabIndex={0}>{one.text}</pre>
        </details>
      ))}
      {skills.length > 0 && <ul className="plain-list">{skills.map((path) => <li key={path}><a className="mono" href={hrefOfFile(path)}>{path}</a></li>)}</ul>}
    </>
  );
}

function Server({ server, agent }: { server: SessionMcpServer; agent: string }) {
  const { words, tone } = serverState(server.state);
  const hint = server.error ? undefined : serverHint(server, agent);
  const tools = server.tools;
  return (
    <li className="mcp-one">
      <div className="row nowrap">
        <strong className="clip">{server.name}</strong>
        <Badge tone={tone}>{words}</Badge>
        <span className="soft small grow">{[server.transport, server.source === "agent" ? `from ${agent}’s configuration` : "of this session"].filter(Boolean).join(", ")}</span>
      </div>
      {server.error && (
        <div className="mcp-error">
          <p className={server.state === "failed" ? "bad-text" : "soft"}>{server.error}</p>
          <CopyButton text={server.error} iconOnly label={`Copy what ${server.name} says`} />
        </div>
      )}
      {hint && <p className="soft small">{hint}</p>}
      {tools && tools.length === 0 && server.state === "ready" && <p className="soft small">It has no tools.</p>}
      {tools && tools.length > 0 && (
        <details>
          <summary>{plural(tools.length + (server.moreTools ?? 0), "tool")}</summary>
          <dl className="mcp-tools">
            {tools.map((tool) => <div key={tool.name}><dt className="mono">{tool.name}</dt><dd className="soft">{tool.description}</dd></div>)}
          </dl>
          {(server.moreTools ?? 0) > 0 && <p className="soft small">{plural(server.moreTools!, "tool")} more</p>}
        </details>
      )}
    </li>
  );
}
