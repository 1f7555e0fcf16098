package docs_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/control/client"
)

// reach is how an operation of the HTTP API can be used besides HTTP. A cell
// that begins with "-" has none, for the reason behind it.
type reach struct {
	cli  string // a command
	sdk  string // FILE.METHOD of the package sandbox-agent
	goes string // TYPE.METHOD of control/client
	page string // a page that explains it and names its path
}

const (
	byACP    = "- a message of the protocol: prompt and rpc send them"
	inStream = "- a client is a connection: the dialled one is acp/acphttp's"
	probe    = "- for probes of whatever runs the gateway"
)

// parity has a row for every operation.
var parity = map[string]reach{
	"postMessage":     {byACP, "client.prompt", inStream, "transport"},
	"openStream":      {"rpc stream", "client.onUpdate", inStream, "transport"},
	"closeConnection": {"- commands end their connections by themselves", "client.disconnect", inStream, "transport"},

	"getMetrics": {"metrics", "api.metrics", "Client.Metrics", "observability"},
	"getHealth":  {"health", "api.health", "Client.Health", "security"},
	"getReady":   {"health", probe, "Client.Ready", "migration"},
	"getVersion": {"- version tells the program's own; curl tells a gateway's", "api.version", "Client.Version", "http-api"},
	"getOpenAPI": {"openapi", "- the package's types are made from it", "Client.OpenAPI", "http-api"},
	"getDoctor":  {"doctor", "api.doctor", "Client.Doctor", "installation"},

	"listAgents":         {"agents list", "api.agents", "Client.Agents", "agents"},
	"getAgent":           {"agents show", "api.agent", "Client.Agent", "migration"},
	"installAgent":       {"agents install", "api.installAgent", "Client.Install", "installation"},
	"getAgentInstall":    {"agents show", "- agent() says what is installed; provenance is for operators", "Client.InstallStatus", "installation"},
	"removeAgentInstall": {"agents remove", "api.removeAgent", "Client.RemoveInstall", "installation"},

	"listSessions":             {"sessions list", "api.sessions", "Client.Sessions", "migration"},
	"followSessions":           {"sessions watch", "api.followSessions", "Client.FollowSessions", "sessions"},
	"getSession":               {"sessions show", "api.session", "Client.Session", "resume"},
	"getSessionEvents":         {"sessions events", "api.sessionEvents", "Client.FollowEvents", "migration"},
	"getSessionRaw":            {"sessions raw", "api.sessionRaw", "Client.Raw", "sessions"},
	"getSessionTranscript":     {"sessions show", "api.sessionTranscript", "Client.Transcript", "sessions"},
	"exportSession":            {"sessions export", "api.exportSession", "Client.ExportSession", "travel"},
	"exportSessionLacking":     {"teleport", "- teleport is for gateways of one's own; a file for others is exportSession's", "Client.ExportSession", "travel"},
	"importSession":            {"sessions import", "api.importSession", "Client.ImportSession", "travel"},
	"closeSession":             {"sessions close", "client.closeSession", "Client.CloseSession", "sessions"},
	"listSessionPermissions":   {"sessions permissions", "api.sessionPermissions", "Client.Permissions", "permissions"},
	"forgetSessionPermission":  {"sessions permissions", "api.forgetPermissions", "Client.ForgetPermission", "permissions"},
	"forgetSessionPermissions": {"sessions permissions", "api.forgetPermissions", "Client.ForgetPermissions", "permissions"},
	"deleteSession":            {"sessions delete", "client.deleteSession", "Client.DeleteSession", "sessions"},

	"getFile":       {"fs get", "files.read", "Files.Get", "files"},
	"putFile":       {"fs put", "files.write", "Files.Put", "files"},
	"listEntries":   {"fs ls", "files.list", "Files.List", "files"},
	"statEntry":     {"fs stat", "files.stat", "Files.Stat", "files"},
	"makeDirectory": {"fs mkdir", "files.mkdir", "Files.Mkdir", "files"},
	"moveEntry":     {"fs mv", "files.move", "Files.Move", "files"},
	"copyEntry":     {"fs cp", "files.copy", "Files.Copy", "files"},
	"deleteEntry":   {"fs rm", "files.delete", "Files.Delete", "files"},
	"uploadBatch":   {"fs upload", "files.uploadArchive", "Files.Upload", "files"},
	"getChecksums":  {"teleport", "- teleport is for gateways of one's own", "Files.Checksums", "travel"},
	"downloadBatch": {"fs download", "files.downloadArchive", "Files.Download", "files"},
	"searchFiles":   {"fs search", "files.search", "Files.Search", "files"},
	"watchFiles":    {"fs watch", "files.watch", "Files.Watch", "files"},
	"getGitStatus":  {"fs git status", "files.gitStatus", "Files.GitStatus", "files"},
	"getGitDiff":    {"fs git diff", "files.gitDiff", "Files.GitDiff", "files"},

	"runProcess":       {"process run", "processes.run", "Client.Run", "processes"},
	"startProcess":     {"process start", "processes.start", "Client.Start", "processes"},
	"listProcesses":    {"process ls", "processes.list", "Client.Processes", "processes"},
	"getProcess":       {"process show", "processes.get", "Client.Process", "processes"},
	"getProcessLogs":   {"process logs", "processes.logs", "Client.ProcessLog", "processes"},
	"writeProcess":     {"process stdin", "processes.write", "Client.WriteProcess", "processes"},
	"signalProcess":    {"process kill", "processes.signal", "Client.SignalProcess", "processes"},
	"stopProcess":      {"process stop", "processes.stop", "Client.StopProcess", "processes"},
	"deleteProcess":    {"process rm", "processes.delete", "Client.DeleteProcess", "processes"},
	"viewTerminal":     {"process attach", "processes.terminal", "Client.Terminal", "processes"},
	"getProcessLimits": {"process limits", "processes.limits", "Client.ProcessLimits", "processes"},
	"setProcessLimits": {"process limits", "processes.setLimits", "Client.SetProcessLimits", "processes"},
}

// named are words of pages for paths that they write differently.
var named = map[string]string{
	"closeSession": "session/close", "deleteSession": "session/delete", "getSession": "GET /v2/sessions/ID",
	"copyEntry": "`/copy`", "getGitDiff": "`/git/diff`", "getSessionEvents": "/v2/sessions/{id}/events", "getSessionRaw": "/v2/sessions/{id}/raw",
}

func TestParity(t *testing.T) {
	a := readAPI(t)
	reference := read(t, "cli.mdx")
	types := map[string]reflect.Type{"Client": reflect.TypeFor[*client.Client](), "Files": reflect.TypeFor[client.Files]()}
	var seen []string
	for path, item := range a.Paths {
		for _, method := range methods {
			op, ok := item[method]
			if !ok {
				continue
			}
			seen = append(seen, op.OperationID)
			r, ok := parity[op.OperationID]
			if !ok {
				t.Errorf("%s %s (%s) has no row in the table: give it a command, a method of the SDK, one of the Go client and a page, or reasons", method, path, op.OperationID)
				continue
			}
			for _, cell := range []string{r.cli, r.sdk, r.goes} {
				if cell == "" || cell == "-" || cell == "- " {
					t.Errorf("%s: a cell is empty and gives no reason", op.OperationID)
				}
			}
			if !strings.HasPrefix(r.cli, "-") && !regexp.MustCompile(`(?m)^###? sandbox-agent `+r.cli+`$`).MatchString(reference) {
				t.Errorf("%s: there is no command %s", op.OperationID, r.cli)
			}
			if file, name, ok := strings.Cut(r.sdk, "."); ok && !strings.HasPrefix(r.sdk, "-") {
				source := read(t, filepath.Join("..", "sdk-ts", "sandbox-agent", "src", file+".ts"))
				if !regexp.MustCompile(`(?m)^  (async )?\*?` + name + `\(`).MatchString(source) {
					t.Errorf("%s: the SDK has no method %s", op.OperationID, r.sdk)
				}
			}
			if of, name, ok := strings.Cut(r.goes, "."); ok && !strings.HasPrefix(r.goes, "-") {
				if _, there := types[of].MethodByName(name); !there {
					t.Errorf("%s: the Go client has no method %s", op.OperationID, r.goes)
				}
			}
			word := named[op.OperationID]
			if word == "" {
				word = path
			}
			if !strings.Contains(read(t, r.page+".mdx"), word) {
				t.Errorf("%s: the page %s does not name %s", op.OperationID, r.page, word)
			}
		}
	}
	for id := range parity {
		if !slices.Contains(seen, id) {
			t.Errorf("the table has %s, which is no operation", id)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
