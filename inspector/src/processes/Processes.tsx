import { AreaHead, Empty } from "../kit/show.js";

export default function Processes() {
  return (
    <div className="area">
      <AreaHead title="Processes" />
      <Empty icon="processes" title="Nothing here yet" />
    </div>
  );
}
