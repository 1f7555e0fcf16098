import { client, methods, PROTOCOL_VERSION } from "@agentclientprotocol/sdk/unstable";
import { wishes, type Speak } from "./connection.js";
import { QUESTION, type QuestionRequest } from "./extensions.js";
import { META } from "./meta.js";

/** Version 1 of ACP. */
export const speakFirst: Speak<1> = async (stream, intro, inbound) => {
  const app = client({ name: intro.name })
    .onRequest(methods.client.session.requestPermission, ({ params, signal }) => inbound.permission(params, signal))
    .onRequest(QUESTION, (params) => params as QuestionRequest, ({ params, signal }) => inbound.question(params, signal));
  if (inbound.elicitation) {
    const answer = inbound.elicitation;
    app.onRequest(methods.client.elicitation.create, ({ params, signal }) => answer(params, signal));
  }
  const { agent } = app.connect(stream);
  const hello = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientInfo: { name: intro.name, version: intro.version },
    clientCapabilities: {
      ...intro.capabilities,
      ...(inbound.elicitation ? { elicitation: { form: {}, url: {} } } : {}),
      _meta: { ...intro.capabilities._meta, ...wishes },
    },
    ...(intro.agent === undefined ? {} : { _meta: { [META]: { agent: intro.agent } } }),
  });
  return { agent, hello };
};
