package pi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// again loads the gate twice for what Pi gives to extensions once, has an extension ask, and prints what the gate says of that.
const again = `
const said = [];
const handlers = [];
const ui = { setStatus: (key, text) => said.push([key, JSON.parse(text)]) };
for (const kind of ["select", "confirm", "input"]) ui[kind] = async () => "yes";
const pi = { on: (event, handler) => { if (event === "session_start") handlers.push(handler); }, getAllTools: () => [], registerProvider: () => {} };
const load = async (n) => {
  handlers.length = 0;
  await (await import("./gate.mjs?" + n)).default(pi);
  for (const handler of handlers) await handler({ reason: "reload" }, { ui });
};
await load(1);
await load(2);
said.length = 0;
await ui.select("Which?", ["yes"], { timeout: 1000 });
await new Promise((resolve) => setImmediate(resolve));
process.stdout.write(said.map(([key, what]) => key + " " + what.over).join(", "));
`

// Pi may load its extensions anew, and give them what it gave them before. A question is told of once.
func TestGate_LoadedAnew(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	gate, err := gateFile(gateFacts{Mark: "mark"})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"gate.mjs": strings.ReplaceAll(string(gate), ":null", ":{}"), "again.mjs": again} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(node, filepath.Join(dir, "again.mjs"))
	cmd.Env = append(os.Environ(), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if want := gateAsked + " false, " + gateAsked + " true"; err != nil || string(out) != want {
		t.Errorf("it says %s, %v, want %s", out, err, want)
	}
}
