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
	want := c.ChooseOther(made)
	r := c.Must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: id, Cwd: c.W.Cwd})
	fork := schema.SessionID(rawjson.MemberString(r, "sessionId"))
	c.HasModel("a fork", r, want)
	for _, one := range []schema.SessionID{id, fork} {
		c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: one})
	}
	again := c.Must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: fork, Cwd: c.W.Cwd})
	c.HasModel("a fork that is opened again", again, want)
	for _, one := range []schema.SessionID{fork, id} {
		c.Must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: one})
	}
}

// ChooseOther gives a session, by what was said when it was made, another model, and returns that.
func (c *Client) ChooseOther(made []byte) (want string) {
	c.W.T.Helper()
	option, now, models := model(made)
	models = slices.DeleteFunc(models, func(m string) bool { return m == now })
	if len(models) == 0 {
		c.W.T.Fatalf("there is no other model than %s", now)
	}
	want = models[len(models)-1] // the first may be another name of the one that it has
	c.Must(acp.MethodSessionSetConfigOption, map[string]any{"sessionId": rawjson.MemberString(made, "sessionId"), "configId": option, "value": want})
	return want
}

// HasModel checks which model a session has, by what was said when it was opened.
func (c *Client) HasModel(what string, opened []byte, want string) {
	c.W.T.Helper()
	if _, now, _ := model(opened); now != want {
		c.W.T.Errorf("%s has model %s, want %s", what, now, want)
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
