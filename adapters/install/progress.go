package install

import "time"

// Step names what an installation is doing.
type Step string

// The steps, in the order in which they usually come. A source that fails is
// followed by the next one's steps.
const (
	StepWait     Step = "wait"     // for another installer of the same agent
	StepResolve  Step = "resolve"  // which version
	StepDownload Step = "download" // counts bytes
	StepUnpack   Step = "unpack"   // counts bytes written
	StepPackage  Step = "package"  // npm or uv is at work
	StepVerify   Step = "verify"   // whose signatures it has
	StepProve    Step = "prove"    // the program is run
	StepLand     Step = "land"     // the installation takes its place
)

// Progress is one report of an installation's progress.
type Progress struct {
	Agent  string `json:"agent"`
	Source Source `json:"source,omitempty"`
	Step   Step   `json:"step"`
	Detail string `json:"detail,omitempty"` // a URL or a package, for people
	Done   int64  `json:"done"`             // bytes
	Total  int64  `json:"total"`            // bytes; 0 when unknown
}

// progressEvery bounds how often counts within one step are reported.
const progressEvery = 100 * time.Millisecond

// reporter passes progress on. It is used by one goroutine.
type reporter struct {
	to   func(Progress) // nil when nobody listens
	last Progress
	at   time.Time // when last was passed on
}

// step begins a step, whose first count passes at once.
func (r *reporter) step(s Step, detail string) {
	r.last.Step, r.last.Detail, r.last.Done, r.last.Total = s, detail, 0, 0
	r.send()
	r.at = time.Time{}
}

// count reports bytes within the step; the end of a known total always passes.
func (r *reporter) count(done, total int64) {
	r.last.Done, r.last.Total = done, max(total, 0)
	if done == total || time.Since(r.at) >= progressEvery {
		r.send()
	}
}

func (r *reporter) send() {
	if r.to != nil {
		r.to(r.last)
		r.at = time.Now()
	}
}
