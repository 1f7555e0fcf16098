package control

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/control/openapi"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func TestOpenAPI_Committed(t *testing.T) {
	committed(t, openapi.JSON, "openapi_gen.json", "../docs/openapi.json")
	committed(t, openapi.HubJSON, "../fleet/openapi_gen.json", "../docs/hub-openapi.json")
}

// committed compares, or with -update writes, the files that have a document.
func committed(t *testing.T, document func() ([]byte, error), files ...string) {
	t.Helper()
	want, err := document()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s is out of date, run go generate ./control; -want +got:\n%s", name, cmp.Diff(string(want), string(got)))
		}
	}
}

func TestOpenAPI_RoutesBothWays(t *testing.T) {
	doc, err := openapi.Build()
	if err != nil {
		t.Fatal(err)
	}
	var described, served []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	param := regexp.MustCompile(`:(\w+)`)
	for _, r := range newServer(t, Options{}).echo.Routes() {
		if r.Method != http.MethodHead { // implied by GET
			served = append(served, r.Method+" "+param.ReplaceAllString(r.Path, "{$1}"))
		}
	}
	// The agent protocol's endpoint does not pass through echo.
	served = append(served, "GET /v2/rpc", "POST /v2/rpc", "DELETE /v2/rpc")
	slices.Sort(described)
	slices.Sort(served)
	if diff := cmp.Diff(described, served); diff != "" {
		t.Errorf("described and served routes differ (-described +served):\n%s", diff)
	}
}

func TestOpenAPI_SchemasMatchGoTypes(t *testing.T) {
	doc, err := openapi.Build()
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]any{
		"Status": statusBody{}, "Version": versionBody{}, "AgentList": agentsBody{}, "Agent": runtime.AgentInfo{}, "Choice": runtime.Choice{}, "Support": adapters.Support{},
		"Process": runtime.ProcessInfo{}, "SessionPage": runtime.SessionList{}, "SessionChange": runtime.SessionChange{}, "Cost": runtime.Cost{}, "Use": runtime.Use{}, "Match": runtime.Match{}, "Child": runtime.Child{}, "Session": runtime.SessionInfo{}, "MCPServer": acp.MCPServer{}, "MCPTool": acp.MCPTool{}, "Instruction": runtime.Instruction{}, "ImportedSession": runtime.Imported{}, "Permission": runtime.Grant{}, "PermissionList": permissionsBody{}, "ForgottenPermissions": forgottenBody{},
		"InstallRequest": installBody{}, "Installation": install.Installation{}, "InstallResult": install.Result{}, "InstallStatus": install.Status{},
		"InstallProgress": install.Progress{}, "Attempt": install.Attempt{}, "NewerVersion": install.Newer{}, "Artifact": install.Artifact{}, "Download": install.Download{}, "Verification": install.Verification{},
		"Report": install.Report{}, "Check": install.Check{},
		"FileEntry": fs.Entry{}, "FileListed": fs.Listed{}, "FilePage": fs.Page{}, "FileUpload": fs.Unpacked{},
		"FileSearch": fs.Found{}, "FileMatch": fs.Match{}, "FileChange": fs.Change{}, "GitStatus": fs.GitStatus{}, "GitFile": fs.GitFile{},
		"ProcessStart": startBody{}, "ProcessRun": runBody{}, "ProcessResult": runAnswer{}, "ProcessCaptured": outputBody{}, "HostProcess": process.Info{},
		"ProcessList": processesBody{}, "ProcessLog": logBody{}, "ProcessOutput": logChunk{}, "ProcessWritten": writtenBody{}, "ProcessSignal": signalBody{},
		"ProcessLimits": process.Limits{}, "TerminalFrame": TerminalFrame{},
		"End": runtime.EndInfo{}, "Stderr": runtime.StderrInfo{}, "Event": runtime.Event{},
	}
	for name, v := range types {
		schema := doc.Components.Schemas[name].Value
		var fields, required []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if f.Anonymous || !f.IsExported() {
				continue
			}
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, tag)
			if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
				required = append(required, tag)
			}
		}
		slices.Sort(fields)
		slices.Sort(required)
		if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(schema.Properties))); diff != "" {
			t.Errorf("%s: fields differ (-Go +document):\n%s", name, diff)
		}
		if diff := cmp.Diff(required, schema.Required); diff != "" {
			t.Errorf("%s: required fields differ (-Go +document):\n%s", name, diff)
		}
	}
	for name := range doc.Components.Schemas {
		if _, ok := types[name]; !ok && name != "Problem" && name != "EventPage" && name != "ProcessLimitsChange" {
			t.Errorf("schema %s is compared with no Go type", name)
		}
	}
}

func TestOpenAPI_Served(t *testing.T) {
	a := newAPI(t, Options{})
	resp := a.get("/v2/openapi.json")
	var doc struct {
		OpenAPI string `json:"openapi"`
	}
	if err := json.Unmarshal(resp.Body.Bytes(), &doc); err != nil || doc.OpenAPI != "3.0.3" {
		t.Errorf("openapi %q, %v", doc.OpenAPI, err)
	}
}

// Every operation refuses the same queries, before it looks at anything else: what is not understood is not ignored.
func TestQueries_Refused(t *testing.T) {
	doc, err := openapi.Build()
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(t, Options{RPC: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })})
	ask := func(method, target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+target, nil))
		return w
	}
	refused := func(method, target, why string) {
		t.Helper()
		if w := ask(method, target); w.Code != http.StatusBadRequest || kindOf(t, w) != problem.InvalidRequest || !strings.Contains(w.Body.String(), why) {
			t.Errorf("%s %s: %d %s, want %q", method, target, w.Code, w.Body, why)
		}
	}
	param := regexp.MustCompile(`\{\w+\}`)
	for path, item := range doc.Paths.Map() {
		at := param.ReplaceAllString(path, "s1")
		for method, op := range item.Operations() {
			refused(method, at+"?a=%zz", "the query cannot be read")
			refused(method, at+"?a=1;b=2", "the query cannot be read")
			if !slices.Contains([]string{"/v2/rpc", "/v2/health", "/v2/ready", "/metrics"}, path) {
				refused(method, at+"?lmit=1", "lmit")
			} else if w := ask(method, at+"?of-a-proxy=1"); w.Code == http.StatusBadRequest {
				t.Errorf("%s %s with what a proxy wants: %d %s", method, at, w.Code, w.Body)
			}
			for _, p := range op.Parameters {
				if p.Value.In == "query" && !p.Value.Schema.Value.Type.Is("array") {
					refused(method, at+"?"+p.Value.Name+"=1&"+p.Value.Name+"=1", p.Value.Name+" is given more than once")
				}
			}
		}
	}
	refused(http.MethodHead, "/v2/sessions?lmit=1", "")
}
