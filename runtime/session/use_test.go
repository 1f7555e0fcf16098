package session

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

func TestUse_IsByDayAndModelAndItsSumsStayTrue(t *testing.T) {
	rec := &record{}
	choose := func(model string) {
		rec.ConfigOptions = json.RawMessage(fmt.Sprintf(`[{"id":"model","category":"model","type":"select","name":"Model","currentValue":%q,"options":[{"value":%[1]q,"name":"M"}]}]`, model))
	}
	day := time.Date(2026, 1, 1, 23, 0, 0, 0, time.FixedZone("west", -3*3600)) // the next day in UTC
	choose("a")
	rec.noteTurn(day, observe.Usage{Input: 10, Output: 1, CacheRead: 3, CacheWrite: 2, Thought: 4})
	rec.noteTurn(day, observe.Usage{Input: 10, Output: 1})
	rec.noteCost(day, Cost{Amount: 0.5, Currency: "USD"})
	rec.noteCost(day, Cost{Amount: 0, Currency: "EUR"})
	told := rec.Usage[0].Cost
	rec.noteCost(day, Cost{Amount: 0.25, Currency: "USD"})
	if len(rec.Usage) != 1 || rec.Usage[0].Day != "2026-01-02" || rec.Usage[0].Model != "a" || rec.Usage[0].Turns != 2 || rec.Usage[0].InputTokens != 20 || rec.Usage[0].Cost.Amount != 0.75 {
		t.Fatalf("%+v", rec.Usage)
	}
	if told.Amount != 0.5 {
		t.Errorf("who was told of a cost sees it change: %v", told.Amount)
	}
	choose("b")
	rec.noteTurn(day, observe.Usage{Input: 1})
	rec.noteCost(day, Cost{Amount: 1, Currency: "EUR"})
	rec.noteCost(day, Cost{Amount: 1, Currency: "USD"}) // beside the other currency
	if len(rec.Usage) != 3 || rec.Usage[1].Cost.Currency != "EUR" || rec.Usage[2].Cost.Currency != "USD" {
		t.Fatalf("%+v", rec.Usage)
	}
	for i := range 5 * maxUse {
		choose(fmt.Sprint("model ", i%3))
		rec.noteTurn(day.AddDate(0, 0, i), observe.Usage{Input: 2, Output: 1, Thought: 1, CacheRead: 1, CacheWrite: 1})
	}
	var turns, in uint64
	for _, u := range rec.Usage {
		turns, in = turns+u.Turns, in+u.InputTokens
	}
	if len(rec.Usage) != maxUse || turns != 3+5*maxUse || in != 21+10*maxUse {
		t.Errorf("%d entries, %d turns, %d tokens", len(rec.Usage), turns, in)
	}
}
