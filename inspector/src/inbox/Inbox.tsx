import { AreaHead, Empty } from "../kit/show.js";

export default function Inbox() {
  return (
    <div className="area">
      <AreaHead title="Inbox" />
      <Empty icon="inbox" title="Nobody asks anything" />
    </div>
  );
}
