package bridge

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Choice is a value of a config option.
type Choice struct{ Value, Name, About string }

// ModeOption is the config option that stands for the modes.
func ModeOption(id acp.SessionConfigID, modes *acp.SessionModeState) acp.SessionConfigOption {
	sel := &acp.SessionConfigSelect{CurrentValue: acp.SessionConfigValueID(modes.CurrentModeID)}
	for _, m := range modes.AvailableModes {
		sel.Options.Ungrouped = append(sel.Options.Ungrouped, acp.SessionConfigSelectOption{
			Value: acp.SessionConfigValueID(m.ID), Name: m.Name, Description: m.Description,
		})
	}
	return acp.SessionConfigOption{ID: id, Name: "Mode", Category: acp.SessionConfigOptionCategoryMode, Select: sel}
}

// ModelOption is the config option of the models.
func ModelOption(id acp.SessionConfigID, now string, models []Choice) acp.SessionConfigOption {
	return choose(acp.SessionConfigOption{ID: id, Name: "Model", Category: acp.SessionConfigOptionCategoryModel}, now, models)
}

// EffortOption is the config option, called name, of how much the model thinks.
func EffortOption(id acp.SessionConfigID, name, now string, levels []string) acp.SessionConfigOption {
	list := make([]Choice, 0, len(levels))
	for _, e := range levels {
		if e != "" {
			list = append(list, Choice{Value: e, Name: strings.ToUpper(e[:1]) + e[1:]})
		}
	}
	return choose(acp.SessionConfigOption{ID: id, Name: name, Category: acp.SessionConfigOptionCategoryThoughtLevel}, now, list)
}

func choose(o acp.SessionConfigOption, now string, list []Choice) acp.SessionConfigOption {
	o.Select = &acp.SessionConfigSelect{CurrentValue: acp.SessionConfigValueID(now)}
	for _, c := range list {
		one := acp.SessionConfigSelectOption{Value: acp.SessionConfigValueID(c.Value), Name: FirstOf(c.Name, c.Value)}
		if c.About != "" {
			one.Description = &c.About
		}
		o.Select.Options.Ungrouped = append(o.Select.Options.Ungrouped, one)
	}
	return o
}
