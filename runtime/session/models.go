package session

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
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
	for _, o := range rawjson.Elements(options) {
		category := rawjson.MemberString(o, "category")
		if category == "thought_level" {
			current = rawjson.MemberString(o, "currentValue")
			for _, v := range Choices(o) {
				variants = append(variants, rawjson.MemberString(v, "value"))
			}
		}
		if category == "model" {
			out.Current = rawjson.MemberString(o, "currentValue")
			for _, v := range Choices(o) {
				out.Available = append(out.Available, Model{
					ModelID: rawjson.MemberString(v, "value"), Name: rawjson.MemberString(v, "name"), Description: rawjson.MemberString(v, "description"),
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
	raw, _ := rawjson.Member(option, "options")
	var out []json.RawMessage
	for _, v := range rawjson.Elements(raw) {
		if group, ok := rawjson.Member(v, "options"); ok {
			out = append(out, rawjson.Elements(group)...)
			continue
		}
		out = append(out, v)
	}
	return out
}
