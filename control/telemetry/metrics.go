package telemetry

import (
	"net/http"
	goruntime "runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Buckets, in seconds.
var (
	short = []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .25, 1} // inside the gateway
	usual = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}             // requests, starts
	long  = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 1800, 3600}                      // turns, people
)

// family is a metric as the documentation lists it.
type family struct {
	name, kind string
	labels     []string
}

// metrics are the gateway's metrics and their registry, which is nobody else's.
type metrics struct {
	collectors []prometheus.Collector
	registry   func() *prometheus.Registry // of the collectors; made when it is first called
	families   []family

	turnsStarted, turnsEnded, tokens, cost *prometheus.CounterVec
	turnsOpen                              *prometheus.GaugeVec
	turnDuration, firstUpdate              *prometheus.HistogramVec
	forward                                prometheus.Observer
	agentStart                             *prometheus.HistogramVec
	agentExits                             *prometheus.CounterVec
	asked, decided                         *prometheus.CounterVec
	asksOpen                               *prometheus.GaugeVec
	askWait                                *prometheus.HistogramVec
	rpc                                    *prometheus.CounterVec
	syncs                                  prometheus.Observer
	syncErrors                             prometheus.Counter
	requests, problems, transfers, spans   *prometheus.CounterVec
	requestDuration                        *prometheus.HistogramVec
	requestsOpen                           prometheus.Gauge
	census                                 *census

	mu         sync.Mutex
	currencies map[string]bool // labels so far; at most maxCurrencies, others are "other"
}

const maxCurrencies = 16

func newMetrics(version string) *metrics {
	m := &metrics{currencies: map[string]bool{}}
	m.registry = sync.OnceValue(func() *prometheus.Registry { // not at the start: many gateways are never asked
		r := prometheus.NewRegistry()
		r.MustRegister(m.collectors...)
		r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		return r
	})
	m.gauge("build_info", "1, with the version of the program and of Go.", "version", "goversion").WithLabelValues(version, goruntime.Version()).Set(1)

	m.turnsStarted = m.counter("turns_started_total", "Prompts that were accepted.", "agent")
	m.turnsEnded = m.counter("turns_ended_total", "Turns that have ended, by stop reason; failed is an error in place of one.", "agent", "outcome")
	m.turnsOpen = m.gauge("turns_open", "Turns that run or wait for another of their session to end.", "agent")
	m.turnDuration = m.histogram("turn_duration_seconds", "From a prompt's arrival to its response.", long, "agent")
	m.firstUpdate = m.histogram("turn_first_update_seconds", "From a prompt's arrival to the first message, thought, plan or tool call of the agent.", long, "agent")
	m.tokens = m.counter("tokens_total", "Tokens of turns, as agents report them with their responses.", "agent", "kind")
	m.cost = m.counter("cost_total", "What sessions have cost, as agents report it.", "agent", "currency")

	m.forward = m.histogram("forward_seconds", "From reading an agent's message until it is in the log, in one batch of 16.", short).WithLabelValues()

	m.agentStart = m.histogram("agent_start_seconds", "Starts of agent processes, with initialize and with the installation of an agent that is missing.", usual, "agent", "outcome")
	m.agentExits = m.counter("agent_process_exits_total", "Agent processes that have ended: clean, crash or killed.", "agent", "kind")

	m.asked = m.counter("asks_total", "What agents asked people: permissions, elicitations, questions.", "agent", "kind")
	m.decided = m.counter("asks_answered_total", "What became of it: the kind of option that was chosen, or how it ended without a choice.", "agent", "kind", "outcome")
	m.asksOpen = m.gauge("asks_open", "What agents wait for people to answer.", "agent", "kind")
	m.askWait = m.histogram("ask_wait_seconds", "How long agents waited for an answer.", long, "kind")

	m.rpc = m.counter("rpc_requests_total", "Answered requests of ACP clients, prompts excepted.", "method", "outcome")

	m.syncs = m.histogram("journal_sync_seconds", "Making the log of a session durable.", usual).WithLabelValues()
	m.syncErrors = m.counter("journal_sync_errors_total", "Logs that could not be made durable.").WithLabelValues()

	m.requests = m.counter("http_requests_total", "Answered HTTP requests.", "method", "route", "status")
	m.requestDuration = m.histogram("http_request_duration_seconds", "HTTP requests; of streams and WebSockets, how long they were open.", usual, "method", "route")
	m.requestsOpen = m.gauge("http_requests_open", "HTTP requests that are being served, with WebSockets and the event streams of the HTTP API.").WithLabelValues()
	m.problems = m.counter("problems_total", "Problem documents that were sent, by the last part of their type.", "type")
	m.transfers = m.counter("file_transfer_bytes_total", "Bytes of the bodies of file uploads and downloads.", "direction")

	m.spans = m.counter("trace_spans_total", "Spans that the collector took, those it did not, and those that found no room to wait for it.", "outcome")

	m.census = newCensus(m)
	return m
}

// add notes a metric for the documentation and returns its full name.
func (m *metrics) add(name, kind string, labels []string) string {
	name = "sandbox_agent_" + name
	m.families = append(m.families, family{name, kind, labels})
	return name
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.add(name, "counter", labels), Help: help}, labels)
	m.collectors = append(m.collectors, v)
	return v
}

func (m *metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.add(name, "gauge", labels), Help: help}, labels)
	m.collectors = append(m.collectors, v)
	return v
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.add(name, "histogram", labels), Help: help, Buckets: buckets}, labels)
	m.collectors = append(m.collectors, v)
	return v
}

// maxScrapes bounds the scrapes at one time; more are answered with 503.
const maxScrapes = 4

func (m *metrics) handler() http.Handler {
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return m.registry().Gather() })
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true})
}

// currency is a label for a unit of cost. Agents choose them, so their number
// is bounded.
func (m *metrics) currency(unit string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.currencies[unit] {
		return unit
	}
	if len(m.currencies) >= maxCurrencies || !plainUnit(unit) {
		return other
	}
	m.currencies[unit] = true
	return unit
}

// plainUnit reports whether unit is a short word of letters.
func plainUnit(unit string) bool {
	for _, c := range []byte(unit) {
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return unit != "" && len(unit) <= 12
}

// other is the label for what is not a word of the protocols.
const other = "other"
