package session

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Models is the result of list_models.
type Models struct {
	Available []Model `json:"availableModels"`
	Current   string  `json:"currentModelId"`
}

// Model is one of them.
type Model struct {
	ModelID        string   `json:"modelId"`
	Name           string   `json:"name"`
	Description    string   `json:"description,omitempty"`
	Variants       []string `json:"variants"`
	DefaultVariant string   `json:"defaultVariant,omitempty"`
}

// ModelsOf reads the models, and the thought levels as their variants, from a
// session's config options, which the agent reported.
func ModelsOf(options json.RawMessage) Models {
	out := Models{Available: []Model{}}
	variants, current := []string{}, ""
	for _, o := range acp.Elements(options) {
		category := acp.MemberString(o, "category")
		if category == "thought_level" {
			current = acp.MemberString(o, "currentValue")
			for _, v := range Choices(o) {
				variants = append(variants, acp.MemberString(v, "value"))
			}
		}
		if category == "model" {
			out.Current = acp.MemberString(o, "currentValue")
			for _, v := range Choices(o) {
				out.Available = append(out.Available, Model{
					ModelID: acp.MemberString(v, "value"), Name: acp.MemberString(v, "name"), Description: acp.MemberString(v, "description"),
				})
			}
		}
	}
	for i := range out.Available {
		out.Available[i].Variants, out.Available[i].DefaultVariant = variants, current
	}
	return out
}

// Choices returns a select option's values, those in groups too.
func Choices(option json.RawMessage) []json.RawMessage {
	raw, _ := acp.Member(option, "options")
	var out []json.RawMessage
	for _, v := range acp.Elements(raw) {
		if group, ok := acp.Member(v, "options"); ok {
			out = append(out, acp.Elements(group)...)
			continue
		}
		out = append(out, v)
	}
	return out
}
