// Version 2 of ACP.
export { client, methods } from "@agentclientprotocol/sdk/experimental/v2/unstable";
