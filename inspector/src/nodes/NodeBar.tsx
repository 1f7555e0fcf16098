import { useEffect } from "react";
import { LinkButton, Select } from "../kit/controls.js";
import { AreaHead, Empty, Notice } from "../kit/show.js";
import { fleet, gateway, router } from "../state/page.js";
import { useSelected, useStore } from "../state/store.js";
import "./nodes.css";

/** Goes on at the same place with another node. */
function choose(node: string): void {
  const { area, parts, query } = router.now();
  // A path or an id of one machine is none of another.
  router.go(area, parts[0] === "new" || parts[0] === "elsewhere" ? parts : [], { replace: true, query: { ...(query.view === undefined ? {} : { view: query.view }), node } });
  gateway.visit(node);
}

/** Says whose files, programs or agents are shown, and shows those of another node. Without a node somebody has to choose one. */
export default function NodeBar({ area }: { area: { readonly title: string } }) {
  const { nodes, loaded, problem } = useStore(fleet);
  const node = useSelected(gateway, (g) => g.node);
  const route = useStore(router);
  // The address says it, so that a link leads to the same machine.
  useEffect(() => {
    if (node !== undefined && route.query.node === undefined) router.go(route.area, route.parts, { replace: true, query: { ...route.query, node } });
  }, [node, route]);
  const shown = nodes.find((n) => n.name === node);
  const online = nodes.filter((n) => n.state === "online");
  return (
    <>
      <div className="node-bar">
        <label className="row nowrap">
          <span className="soft small">Node</span>
          <Select value={node ?? ""} onChange={(event) => choose(event.target.value)}>
            {node === undefined && <option value="">Choose…</option>}
            {node !== undefined && !shown && <option value={node}>{node}</option>}
            {nodes.map((n) => <option key={n.name} value={n.name} disabled={n.state === "offline" && n.name !== node}>{n.name}{n.state === "offline" ? " (away)" : ""}</option>)}
          </Select>
        </label>
        {loaded && node !== undefined && !shown && <Notice tone="warn" title={`There is no node ${node}`}>It was forgotten, or your token is not for it.</Notice>}
        {shown?.state === "offline" && <Notice tone="warn" title={`${shown.name} is away`}>What belongs to its machine can be seen when it has joined again. Its sessions can be read.</Notice>}
        {problem && <Notice tone="warn" title="The nodes are not up to date">{problem}</Notice>}
      </div>
      {node === undefined && loaded && (
        <div className="area">
          <AreaHead title={area.title} />
          <Empty icon="nodes" title="Choose a node" action={online.length === 0 ? <LinkButton href="#/nodes" icon="nodes">To the nodes</LinkButton> : undefined}>
            <p>{area.title} belong to one machine. {online.length === 0 ? "No node is online now." : "Whose shall be shown?"}</p>
            <p className="row">{online.slice(0, 12).map((n) => <button key={n.name} type="button" className="button" onClick={() => choose(n.name)}>{n.name}</button>)}</p>
          </Empty>
        </div>
      )}
    </>
  );
}
