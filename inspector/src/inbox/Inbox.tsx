import { Empty, AreaHead } from "../kit/show.js";
import { age, plural } from "../kit/text.js";
import { Checkbox } from "../kit/controls.js";
import { gateway, inbox, notifier, sessions, settings, toasts } from "../state/page.js";
import { hrefOf } from "../state/router.js";
import { useSelected, useStore } from "../state/store.js";
import { nameOf } from "../sessions/marks.js";
import { away } from "../sessions/states.js";
import { AskCard } from "./AskCard.js";
import "../conversation/conversation.css";
import "../sessions/sessions.css";

/** Whether the browser tells of what is asked. */
function NotifyToggle() {
  const on = useSelected(settings, (s) => s.notify);
  const turn = async (want: boolean) => {
    if (!(await notifier.turn(want))) toasts.show("The browser does not allow it: its settings of this site say so", "bad");
  };
  return <Checkbox label="Notify me while the page is out of sight" checked={on} disabled={!notifier.possible} onChange={(event) => void turn(event.target.checked)} />;
}

/** What agents ask in all sessions, the oldest first: it has waited longest. */
export default function Inbox() {
  const asks = useStore(inbox);
  const all = useSelected(sessions, (s) => s.sessions);
  const reader = useSelected(gateway, (g) => g.hub?.scope === "read");
  const waiting = reader ? all.filter((s) => s.pending > 0 && !away.has(s.state)).length : 0;
  return (
    <div className="area inbox">
      <AreaHead title="Inbox" lead="Permissions and questions of agents, in all sessions of the gateway. The first answer counts, from here or from another client." actions={<NotifyToggle />} />
      {waiting > 0 ? (
        <Empty icon="inbox" title={`${plural(waiting, "session")} ${waiting === 1 ? "waits" : "wait"} for an answer`}><p>Your token is for reading: what is asked is shown to those who may answer it.</p></Empty>
      ) : asks.length === 0 ? (
        <Empty icon="inbox" title="Nobody asks anything"><p>When an agent needs a decision, it stands here, whichever client started its session.</p></Empty>
      ) : (
        <div className="stack">
          {asks.map((ask, i) => {
            const info = all.find((s) => s.sessionId === ask.sessionId);
            return (
              <AskCard
                key={ask.id} ask={ask} cwd={info?.cwd} keys={i === 0}
                where={
                  <p className="ask-where soft small">
                    {ask.sessionId ? <a href={hrefOf("sessions", [ask.sessionId])}>{info ? nameOf(info) : ask.sessionId}</a> : "Outside of sessions"}
                    {info && <span>{info.agent}</span>}
                    {info && <span className="mono clip">{info.cwd}</span>}
                    <span>{age(ask.at)}</span>
                  </p>
                }
              />
            );
          })}
        </div>
      )}
    </div>
  );
}
