import { AreaHead, Empty } from "../kit/show.js";

export default function Wire() {
  return (
    <div className="area">
      <AreaHead title="Wire" />
      <Empty icon="wire" title="Nothing here yet" />
    </div>
  );
}
