// Version 1 of ACP.
export { client, methods } from "@agentclientprotocol/sdk/unstable";
