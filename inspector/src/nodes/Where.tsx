import { useMemo } from "react";
import { Select } from "../kit/controls.js";
import type { SessionFilter } from "../state/fleet.js";
import { fleet, sessions } from "../state/page.js";
import { useSelected } from "../state/store.js";

const states = [
  ["waiting", "Waits for an answer"], ["running", "Running"], ["idle", "Idle"], ["dormant", "Dormant"], ["closed", "Closed"], ["ended", "Ended"],
  ["offline", "Node is away"], ["gone", "Node has it no more"], ["moved", "Went to another node"],
] as const;

/** Narrows the list of sessions to those of a node, or of nodes with a label, and to those in a state. */
export default function Where({ filter }: { filter: SessionFilter }) {
  const nodes = useSelected(fleet, (f) => f.nodes);
  const labels = useMemo(() => [...new Set(nodes.flatMap((n) => Object.entries(n.labels).map(([name, value]) => `${name}=${value}`)))].sort(), [nodes]);
  const where = filter.node !== undefined ? `node ${filter.node}` : filter.label?.[0] !== undefined ? `label ${filter.label[0]}` : "";
  const change = (place: string, state: string) => {
    const [kind, ...rest] = place.split(" ");
    const name = rest.join(" ");
    sessions.narrow({ ...(kind === "node" ? { node: name } : kind === "label" ? { label: [name] } : {}), ...(state === "" ? {} : { state: [state] }) });
  };
  const state = filter.state?.[0] ?? "";
  return (
    <div className="row nowrap where">
      <Select aria-label="Node or label" value={where} onChange={(event) => change(event.target.value, state)}>
        <option value="">All nodes</option>
        {filter.node !== undefined && !nodes.some((n) => n.name === filter.node) && <option value={where}>{filter.node}</option>}
        {filter.label?.[0] !== undefined && !labels.includes(filter.label[0]) && <option value={where}>{filter.label[0]}</option>}
        <optgroup label="Nodes">{nodes.map((n) => <option key={n.name} value={`node ${n.name}`}>{n.name}{n.state === "offline" ? " (away)" : ""}</option>)}</optgroup>
        {labels.length > 0 && <optgroup label="Labels">{labels.map((l) => <option key={l} value={`label ${l}`}>{l}</option>)}</optgroup>}
      </Select>
      <Select aria-label="State" value={state} onChange={(event) => change(where, event.target.value)}>
        <option value="">All states</option>
        {states.map(([id, words]) => <option key={id} value={id}>{words}</option>)}
      </Select>
    </div>
  );
}
