package pi

import (
	"os"
	"os/exec"
	"path/filepath"
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

// placeGate writes the gate, what it knows of its session, and a program that loads it.
func placeGate(t *testing.T, dir, name, program string) {
	t.Helper()
	known, err := gateFacts{Mark: "mark", Servers: map[string]any{}, Providers: map[string]any{}, Keys: map[string]string{}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{gateName: gateSource, factsName: known, name: []byte(program)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Pi may load its extensions anew, and give them what it gave them before. A question is told of once.
func TestGate_LoadedAnew(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	placeGate(t, dir, "again.mjs", again)
	cmd := exec.Command(node, filepath.Join(dir, "again.mjs"))
	cmd.Env = append(os.Environ(), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if want := gateAsked + " false, " + gateAsked + " true"; err != nil || string(out) != want {
		t.Errorf("it says %s, %v, want %s", out, err, want)
	}
}

// Pi's version is told wherever its package lies: a script of one, a program in one file beside it, or where the user says.
func TestGate_TellsVersion(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	for place, content := range map[string]string{
		"of its script":           `process.argv[1] = at("node_modules/pi/dist/bundle/cli.js", "node_modules/pi");`,
		"linked to its script":    `fs.symlinkSync(at("there/pi/dist/cli.js", "there/pi"), "pi"); process.argv[1] = path.resolve("pi");`,
		"beside its program":      `process.execPath = at("opt/pi/pi", "opt/pi"); process.argv[1] = "/$bunfs/root/pi";`,
		"of the user's choice":    `at("else/x", "else"); process.env.PI_PACKAGE_DIR = path.resolve("else");`,
		"of one with other names": `process.argv[1] = at("fork/dist/cli.js", "fork", { name: "fork", piConfig: {} });`,
		"":                        `process.argv[1] = at("other/cli.js", "other", { name: "other" });`,
	} {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			placeGate(t, dir, "told.mjs", `
import fs from "node:fs";
import path from "node:path";
import gate from "./gate.mjs";
const at = (file, dir, about = { name: "@earendil-works/pi-coding-agent" }) => {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, "");
  fs.writeFileSync(path.join(dir, "package.json"), JSON.stringify({ version: "1.2.3", ...about }));
  return path.resolve(file);
};
`+content+`
let start;
await gate({ on: (event, handler) => { if (event === "session_start") start = handler; }, getAllTools: () => [], registerProvider: () => {} });
await start({}, { ui: { setStatus: (key, text) => process.stdout.write(JSON.parse(text).version ?? "") } });
`)
			cmd := exec.Command(node, "told.mjs")
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			want := "1.2.3"
			if place == "" {
				want = ""
			}
			if err != nil || string(out) != want {
				t.Errorf("it tells %q, %v, want %q", out, err, want)
			}
		})
	}
}
