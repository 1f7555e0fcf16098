package bridge

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Choice is a value of a config option.
type Choice struct{ Value, Name, About string }

// ModeOption is the config option that stands for the modes.
func ModeOption(id schema.SessionConfigID, modes *schema.SessionModeState) schema.SessionConfigOption {
	sel := &schema.SessionConfigSelect{CurrentValue: schema.SessionConfigValueID(modes.CurrentModeID)}
	for _, m := range modes.AvailableModes {
		sel.Options.Ungrouped = append(sel.Options.Ungrouped, schema.SessionConfigSelectOption{
			Value: schema.SessionConfigValueID(m.ID), Name: m.Name, Description: m.Description,
		})
	}
	return schema.SessionConfigOption{ID: id, Name: "Mode", Category: schema.SessionConfigOptionCategoryMode, Select: sel}
}

// ModelOption is the config option of the models.
func ModelOption(id schema.SessionConfigID, now string, models []Choice) schema.SessionConfigOption {
	return choose(schema.SessionConfigOption{ID: id, Name: "Model", Category: schema.SessionConfigOptionCategoryModel}, now, models)
}

// EffortOption is the config option, called name, of how much the model thinks.
func EffortOption(id schema.SessionConfigID, name, now string, levels []string) schema.SessionConfigOption {
	list := make([]Choice, 0, len(levels))
	for _, e := range levels {
		if e != "" {
			list = append(list, Choice{Value: e, Name: strings.ToUpper(e[:1]) + e[1:]})
		}
	}
	return choose(schema.SessionConfigOption{ID: id, Name: name, Category: schema.SessionConfigOptionCategoryThoughtLevel}, now, list)
}

func choose(o schema.SessionConfigOption, now string, list []Choice) schema.SessionConfigOption {
	o.Select = &schema.SessionConfigSelect{CurrentValue: schema.SessionConfigValueID(now)}
	for _, c := range list {
		one := schema.SessionConfigSelectOption{Value: schema.SessionConfigValueID(c.Value), Name: FirstOf(c.Name, c.Value)}
		if c.About != "" {
			one.Description = &c.About
		}
		o.Select.Options.Ungrouped = append(o.Select.Options.Ungrouped, one)
	}
	return o
}
