import { AreaHead, Empty } from "../kit/show.js";

export default function Terminal() {
  return (
    <div className="area">
      <AreaHead title="Terminal" />
      <Empty icon="terminal" title="Nothing here yet" />
    </div>
  );
}
