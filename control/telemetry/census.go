package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// Sessions are counted when the metrics are asked for. *runtime.Runtime
// implements it.
type Sessions interface{ Census() runtime.Census }

// Processes are those of clients, counted likewise. *process.Service implements
// it.
type Processes interface{ Census() process.Census }

var (
	_ Sessions  = (*runtime.Runtime)(nil)
	_ Processes = (*process.Service)(nil)
)

// census collects what others know anyway, when it is asked for.
type census struct {
	sessions  Sessions
	processes Processes

	states, connections, queued, agentProcesses, agentStarts, updates *prometheus.Desc
	journalBytes, appended, written, writeErrors, failing             *prometheus.Desc
	running, terminals, started                                       *prometheus.Desc
}

// newCensus describes the metrics; they are registered by watch.
func newCensus(m *metrics) *census {
	desc := func(name, kind, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(m.add(name, kind, labels), help, labels, nil)
	}
	return &census{
		states:         desc("sessions", "gauge", "Sessions that are known, by what they do. Those that are idle, running or waiting have a process.", "state"),
		connections:    desc("connections", "gauge", "Connected ACP clients.", "transport"),
		queued:         desc("prompts_queued", "gauge", "Prompts that wait for another of their session to end."),
		agentProcesses: desc("agent_processes", "gauge", "Agent processes that live.", "agent"),
		agentStarts:    desc("agent_process_starts_total", "counter", "Agent processes that were started.", "agent"),
		updates:        desc("updates_total", "counter", "Updates of agents that went through logs of sessions.", "agent"),
		journalBytes:   desc("journal_disk_bytes", "gauge", "Size of the logs of all sessions on disk."),
		appended:       desc("journal_appends_total", "counter", "Entries of logs."),
		written:        desc("journal_written_bytes_total", "counter", "Bytes that were written to logs on disk."),
		writeErrors:    desc("journal_write_errors_total", "counter", "Writes to logs on disk that failed, because it is full for instance."),
		failing:        desc("journal_failing", "gauge", "Logs whose newest entries are in memory only, because their file could not be written."),
		running:        desc("processes_running", "gauge", "Processes that clients started and that run."),
		terminals:      desc("terminals_running", "gauge", "Those of them that have a terminal."),
		started:        desc("processes_started_total", "counter", "Processes that clients started."),
	}
}

func (m *metrics) watch(sessions Sessions, processes Processes) {
	m.census.sessions, m.census.processes = sessions, processes
	m.collectors = append(m.collectors, m.census)
}

// Describe implements prometheus.Collector.
func (c *census) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.states, c.connections, c.queued, c.agentProcesses, c.agentStarts, c.updates,
		c.journalBytes, c.appended, c.written, c.writeErrors, c.failing, c.running, c.terminals, c.started,
	} {
		ch <- d
	}
}

// The values of labels that are shown also when there are none.
var (
	states     = []runtime.State{runtime.StateIdle, runtime.StateRunning, runtime.StateWaiting, runtime.StateDormant, runtime.StateClosed, runtime.StateEnded}
	transports = []runtime.Transport{runtime.TransportHTTP, runtime.TransportInline, runtime.TransportStandard, runtime.TransportWebSocket}
)

// Collect implements prometheus.Collector.
func (c *census) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	if c.sessions != nil {
		now := c.sessions.Census()
		for _, s := range states {
			gauge(c.states, float64(now.Sessions[s]), string(s))
		}
		for _, t := range transports {
			gauge(c.connections, float64(now.Connections[t]), string(t))
		}
		for id, a := range now.Agents {
			gauge(c.agentProcesses, float64(a.Processes), id)
			counter(c.agentStarts, a.Started, id)
			counter(c.updates, a.Updates, id)
		}
		gauge(c.queued, float64(now.Queued))
		gauge(c.journalBytes, float64(now.Journal.Bytes))
		counter(c.appended, now.Journal.Appended)
		counter(c.written, now.Journal.Written)
		counter(c.writeErrors, now.Journal.Errors)
		gauge(c.failing, float64(now.Journal.Failing))
	}
	if c.processes != nil {
		now := c.processes.Census()
		gauge(c.running, float64(now.Running))
		gauge(c.terminals, float64(now.Terminals))
		counter(c.started, now.Started)
	}
}
