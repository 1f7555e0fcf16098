package acp

import "testing"

// Errors quote what programs say, and some of them say it to a terminal.
func TestNewError_IsPlain(t *testing.T) {
	for _, c := range []struct{ message, data, want string }{
		{"\x1b[1m\x1b[31mError:\x1b[0m no key\r\n\tat once", ``, `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"Error: no key\n\tat once"}}`},
		{"\x1b]0;title\x07a\x1b[2Kb\u009b31mc\x00", `{"type":"t","n":1.50,"list":["\u001b[31mred\u001b[0m"],"plain":"ü\n"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"ab31mc","data":{"list":["red"],"n":1.50,"plain":"ü\n","type":"t"}}}`},
		{"plain", `{"type":"t","b":1,"a":2}`, `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"plain","data":{"type":"t","b":1,"a":2}}}`},
	} {
		m := NewError("1", &Error{Code: 5, Message: c.message, Data: []byte(c.data)})
		if string(m.Frame()) != c.want {
			t.Errorf("%q, %s:\n%s\nwant\n%s", c.message, c.data, m.Frame(), c.want)
		}
	}
}
