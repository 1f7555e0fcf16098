import { Empty } from "../kit/show.js";

export default function Sessions() {
  return (
    <div className="area">
      <h1>Sessions</h1>
      <Empty icon="sessions" title="No sessions yet" />
    </div>
  );
}
