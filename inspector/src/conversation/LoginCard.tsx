import { useState } from "react";
import { Button } from "../kit/controls.js";
import { credentialsOf, KeyFields, noKeys } from "../login/KeyFields.js";
import { LoginHelp } from "../login/LoginHelp.js";
import { gateway, toasts } from "../state/page.js";
import { useSelected, useStore } from "../state/store.js";
import type { Conversation } from "./conversation.js";
import { useDrive } from "../app/drive.js";

/** The agent has refused a prompt for want of a login: how to give it one. */
export default function LoginCard({ conversation, reason }: { conversation: Conversation; reason: string | undefined }) {
  const { info } = useStore(conversation);
  const agent = useSelected(gateway, (g) => g.agents.find((a) => a.id === info?.agent));
  const [keys, setKeys] = useState(noKeys);
  const [busy, setBusy] = useState(false);
  const credentials = credentialsOf(keys);
  const drive = useDrive();
  if (!agent) return null;
  const give = async () => {
    if (!credentials) return;
    setBusy(true);
    await toasts.attempt("The key could not be given", async () => {
      await conversation.giveCredentials(credentials);
      setKeys(noKeys);
      toasts.show("The agent has the key. Send the prompt again.", "good");
    });
    setBusy(false);
  };
  return (
    <LoginHelp agent={agent} reason={reason}>
      <form className="stack" onSubmit={(event) => { event.preventDefault(); void give(); }}>
        <KeyFields keys={keys} onChange={setKeys} disabled={busy} />
        <div className="row"><Button type="submit" small disabled={!credentials} busy={busy} {...drive}>Use this key</Button> <span className="soft small">For this session alone. It is stored nowhere.</span></div>
      </form>
    </LoginHelp>
  );
}
