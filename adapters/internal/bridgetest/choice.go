package bridgetest

import (
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// ForkKeepsChoice checks that the model that was chosen of a session, in which nothing was said or one prompt, is that of a fork of it,
// also when the fork was closed and is opened again.
func (c *Client) ForkKeepsChoice(prompt string) {
	c.W.T.Helper()
	c.forkKeepsChoice("")
	c.forkKeepsChoice(prompt)
}

func (c *Client) forkKeepsChoice(prompt string) {
	c.W.T.Helper()
	made := c.new("")
	id := schema.SessionID(rawjson.MemberString(made, "sessionId"))
	if prompt != "" {
		c.Turn(id, prompt)
	}
	option, now, models := model(made)
	models = slices.DeleteFunc(models, func(m string) bool { return m == now })
	if len(models) == 0 {
		c.W.T.Fatalf("there is no other model than %s", now)
	}
	want := models[len(models)-1] // the first may be another name of the one that it has
	c.Must(acp.MethodSessionSetConfigOption, map[string]any{"sessionId": id, "configId": option, "value": want})
	r := c.Must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: id, Cwd: c.W.Cwd})
	fork := schema.SessionID(rawjson.MemberString(r, "sessionId"))
	if _, now, _ := model(r); now != want {
		c.W.T.Errorf("a fork has model %s, want %s", now, want)
	}
	for _, one := range []schema.SessionID{id, fork} {
		c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: one})
	}
	again := c.Must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: fork, Cwd: c.W.Cwd})
	if _, now, _ := model(again); now != want {
		c.W.T.Errorf("a fork that is opened again has model %s, want %s", now, want)
	}
	for _, one := range []schema.SessionID{fork, id} {
		c.Must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: one})
	}
}

// model returns the option for the model of a session, its value, and what it can be.
func model(result []byte) (option, now string, models []string) {
	options, _ := rawjson.Member(result, "configOptions")
	for _, o := range rawjson.Elements(options) {
		if rawjson.MemberString(o, "category") != "model" {
			continue
		}
		option, now = rawjson.MemberString(o, "id"), rawjson.MemberString(o, "currentValue")
		list, _ := rawjson.Member(o, "options")
		for _, one := range rawjson.Elements(list) {
			models = append(models, rawjson.MemberString(one, "value"))
		}
	}
	return option, now, models
}
