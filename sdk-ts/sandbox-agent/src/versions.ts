import type * as one from "@agentclientprotocol/sdk/unstable";
import type * as two from "@agentclientprotocol/sdk/experimental/v2/unstable";
import type { Activity } from "./activity.js";

/** A version of ACP. */
export type AcpVersion = 1 | 2;

/** What the versions call by the same name, and say differently. */
interface Versions {
  1: {
    Activity: undefined;
    AuthenticateRequest: one.AuthenticateRequest;
    AuthenticateResponse: one.AuthenticateResponse;
    ClientCapabilities: one.ClientCapabilities;
    ContentBlock: one.ContentBlock;
    CreateElicitationRequest: one.CreateElicitationRequest;
    CreateElicitationResponse: one.CreateElicitationResponse;
    InitializeResponse: one.InitializeResponse;
    ListSessionsRequest: one.ListSessionsRequest;
    ListSessionsResponse: one.ListSessionsResponse;
    McpServer: one.McpServer;
    NewSessionResponse: one.NewSessionResponse;
    PromptResponse: one.PromptResponse;
    RequestPermissionRequest: one.RequestPermissionRequest;
    RequestPermissionResponse: one.RequestPermissionResponse;
    SessionConfigOption: one.SessionConfigOption;
    SessionNotification: one.SessionNotification;
    SessionUpdate: one.SessionUpdate;
    SetSessionConfigOptionRequest: one.SetSessionConfigOptionRequest;
    SetSessionConfigOptionResponse: one.SetSessionConfigOptionResponse;
    StopReason: one.StopReason;
    Usage: one.PromptResponse["usage"];
  };
  2: {
    Activity: Activity;
    AuthenticateRequest: two.LoginAuthRequest;
    AuthenticateResponse: two.LoginAuthResponse;
    ClientCapabilities: two.ClientCapabilities;
    ContentBlock: two.ContentBlock;
    CreateElicitationRequest: two.CreateElicitationRequest;
    CreateElicitationResponse: two.CreateElicitationResponse;
    InitializeResponse: two.InitializeResponse;
    ListSessionsRequest: two.ListSessionsRequest;
    ListSessionsResponse: two.ListSessionsResponse;
    McpServer: two.McpServer;
    NewSessionResponse: two.NewSessionResponse;
    /** Absent when the prompt was cancelled before it began. */
    PromptResponse: two.PromptResponse | undefined;
    RequestPermissionRequest: two.RequestPermissionRequest;
    RequestPermissionResponse: two.RequestPermissionResponse;
    SessionConfigOption: two.SessionConfigOption;
    SessionNotification: two.UpdateSessionNotification;
    SessionUpdate: two.SessionUpdate;
    SetSessionConfigOptionRequest: two.SetSessionConfigOptionRequest;
    SetSessionConfigOptionResponse: two.SetSessionConfigOptionResponse;
    StopReason: string;
    Usage: two.Usage | undefined;
  };
}

/** A type of ACP in a version of it: `Acp<2, "SessionUpdate">`. */
export type Acp<V extends AcpVersion, Name extends keyof Versions[1]> = Versions[V][Name];

/** The kinds of updates there are. */
export type UpdateKind<V extends AcpVersion> = Acp<V, "SessionUpdate"> extends infer U ? (U extends { sessionUpdate: infer K extends string } ? (string extends K ? never : K) : never) : never;

/** The update of a kind. */
export type UpdateOf<V extends AcpVersion, K extends string> = Extract<Acp<V, "SessionUpdate">, { sessionUpdate: K }>;
