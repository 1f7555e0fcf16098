package runtime

import (
	"strings"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/adapters"
)

const onlyReads = `"permissionMode":"readonly"`

// An agent says that it has taken the mode of readonly, and answers that it is in another one.
func TestReadonly_AnswersOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, threeModes("write"))
		id := tc.request("session/load", loadOf("n", "/tmp", own(onlyReads)))
		m := a.nextOf(t, "session/set_config_option")
		m.to.update("n", `{"sessionUpdate":"config_option_update","configOptions":[`+threeModes("plan")+`]}`)
		synctest.Wait()
		a.answer(m, `{"configOptions":[`+threeModes("write")+`]}`)
		_, res := tc.until(id)
		if e := res.Err(); e == nil || !strings.Contains(string(e.Data), "mode_not_supported") {
			t.Errorf("it is held to be readonly: %s", res.Frame())
		}
	})
}

// An agent says that it stays in its mode, together with an option that has changed, and answers nothing of it.
func TestReadonly_StaysAndAnotherChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, threeModes("write"), optionModel)
		id := tc.request("session/load", loadOf("n", "/tmp", own(onlyReads)))
		m := a.nextOf(t, "session/set_config_option")
		m.to.update("n", `{"sessionUpdate":"config_option_update","configOptions":[`+threeModes("write")+`,`+strings.Replace(optionModel, `"big"`, `"small"`, 1)+`]}`)
		synctest.Wait()
		a.answer(m, `{}`)
		_, res := tc.until(id)
		if e := res.Err(); e == nil || !strings.Contains(string(e.Data), "mode_not_supported") {
			t.Errorf("it is held to be readonly: %s", res.Frame())
		}
	})
}

// An agent that has modes and no option for them says that it stays in its own.
func TestReadonly_ModesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
		id := tc.request("session/load", loadOf("n", "/tmp", own(onlyReads)))
		m := a.nextOf(t, "session/set_mode")
		goesOver(m.to, "n", "write", false)
		synctest.Wait()
		a.answer(m, `{}`)
		_, res := tc.until(id)
		if e := res.Err(); e == nil || !strings.Contains(string(e.Data), "mode_not_supported") {
			t.Errorf("it is held to be readonly: %s", res.Frame())
		}
	})
}

// A client chooses another mode, which the agent does not follow: the next process is not set to it.
func TestReadonly_ChoiceThatIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, threeModes("write"))
		id := tc.request("session/load", loadOf("n", "/tmp", own(onlyReads)))
		a.answer(a.nextOf(t, "session/set_config_option"), `{"configOptions":[`+threeModes("plan")+`]}`)
		tc.until(id)
		id = tc.request("session/set_config_option", `{"sessionId":"n","configId":"mode","value":"write"}`)
		a.answer(a.nextOf(t, "session/set_config_option"), `{"configOptions":[`+threeModes("plan")+`]}`)
		tc.until(id)
		tc.ends(a)
		if set := tc.startsWith(a, takesAll, threeModes("plan")); len(set) > 0 {
			t.Errorf("it is set to %q", set)
		}
	})
}
