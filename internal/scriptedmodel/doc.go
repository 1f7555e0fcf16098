// Package scriptedmodel plays a model provider on loopback, for tests of real
// agents. One server speaks four dialects: Anthropic Messages, OpenAI Responses,
// OpenAI Chat Completions and Gemini's generateContent. A test says once what the
// model does, and the script works for an agent of any dialect:
//
//	model := scriptedmodel.Start(t)
//	model.On(scriptedmodel.Exactly("look"),
//		scriptedmodel.Step{scriptedmodel.Think("Let me see."), scriptedmodel.ReadFile("/w/notes.txt")},
//		scriptedmodel.Step{scriptedmodel.Say("It says "), scriptedmodel.SayResult()})
//
// # Which step is played
//
// The request alone decides; the server keeps no conversation. The newest user
// prompt that a rule matches chooses the rule, and the number of rounds of tool
// results after that prompt chooses the step. So retries, resumed sessions and
// sessions side by side need no care. What an agent adds to a prompt, before it or
// after it, is no part of it if it is in a <tag>...</tag> block. The search for a prompt ends at
// an assistant's message without tool calls, which ended an earlier turn. After
// its last step a script says [Over].
//
// Agents ask for titles and summaries on their own account. Such a request is
// recognised ([Request].Kind), matches no rule about prompts and gets a default
// answer; the matcher [Of] changes it.
//
// # Prompts that work without a rule
//
//	say TEXT, echo TEXT    TEXT as the answer, in at most some 500 pieces
//	think TEXT             TEXT as a thought, then "thought"
//	stream N               N chunks "chunk 1 " to "chunk N ", 5 ms apart
//	forever                chunks without end, until the client leaves
//	read PATH              the agent's tool for reading a file, then "read: " and its result
//	reread PATH            the same twice, by calls that have one id, then "reread: "
//	run COMMAND            the agent's shell, then "ran: " and its result
//	write PATH TEXT        the agent's tool for writing a file, then "wrote: " and its result
//	fail STATUS            an HTTP error, as long as it is asked
//	recall                 all prompts of the conversation before this one
//
// # Tools
//
// [Call] names a tool exactly. [ReadFile], [WriteFile], [EditFile] and [Shell]
// find the agent's own tool among those that the request offers and fill its
// arguments by the names in its schema.
//
// # Amp
//
// Amp reaches the model through its own server, and asks that one who the user is.
// Both are this server. [AmpTeamKey] and [AmpRefusedKey] make it answer otherwise.
//
// # Promises
//
// All methods of [Model] may be called concurrently. Everything received is
// recorded. Close ends requests in flight and returns when all goroutines of the
// server have ended their work.
package scriptedmodel
