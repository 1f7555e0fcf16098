package acp

// MethodWorking is the notification by which a bridge of the gateway says that the agent
// works in a session though nobody has prompted it: params have sessionId and working.
// It goes to the gateway alone.
const MethodWorking = "_sandboxagent/session/working"
