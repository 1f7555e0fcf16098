import { AreaHead, Empty } from "../kit/show.js";

export default function Files() {
  return (
    <div className="area">
      <AreaHead title="Files" />
      <Empty icon="files" title="Nothing here yet" />
    </div>
  );
}
