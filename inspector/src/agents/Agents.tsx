import { AreaHead, Empty } from "../kit/show.js";

export default function Agents() {
  return (
    <div className="area">
      <AreaHead title="Agents" />
      <Empty icon="agents" title="Nothing here yet" />
    </div>
  );
}
