package fleet

import (
	"net/http"
	goruntime "runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes bounds the scrapes at one time; more are answered with 503.
const maxScrapes = 4

// metrics are the hub's. Labels hold words of the program only.
type metrics struct {
	handler     http.Handler
	open        prometheus.Gauge
	requests    *prometheus.CounterVec
	joins       *prometheus.CounterVec
	copied      prometheus.Counter
	bundles     *prometheus.CounterVec
	bundleBytes prometheus.Counter
	moves       *prometheus.CounterVec
	forgotten   *prometheus.CounterVec
	peers       *prometheus.CounterVec
}

func newMetrics(version string, h *Hub) *metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &metrics{
		open:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "sandbox_hub_http_requests_open", Help: "Requests that are being served, with streams and tunnels."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_hub_http_requests_total", Help: "Answered requests."}, []string{"route", "method", "status"}),
		joins:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_hub_joins_total", Help: "Gateways that wanted to join: joined, or refused."}, []string{"outcome"}),
		copied:   prometheus.NewCounter(prometheus.CounterOpts{Name: "sandbox_hub_replicated_events_total", Help: "Events of sessions that this hub has copied."}),
	}
	m.bundles = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_hub_bundles_total", Help: "What agents keep of sessions: stored, or failed."}, []string{"outcome"})
	m.bundleBytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "sandbox_hub_bundle_bytes_total", Help: "Bytes of it that were stored."})
	m.moves = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_hub_moves_total", Help: "Sessions that were to go to another node: moved, revived when the node was away, or failed."}, []string{"outcome"})
	m.forgotten = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_hub_forgotten_total", Help: "What this hub has forgotten because nobody has come back for it: sessions, or nodes."}, []string{"what"})
	m.peers = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_hub_peer_failures_total", Help: "Requests that another hub could not be asked: it has no TLS (plain), a certificate that is not trusted, or was unreachable."}, []string{"reason"})
	for _, reason := range peerReasons { // all that can be is shown from the start, at 0
		m.peers.WithLabelValues(reason)
	}
	for _, outcome := range []string{"joined", "refused"} {
		m.joins.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"stored", "failed"} {
		m.bundles.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"moved", "revived", "failed"} {
		m.moves.WithLabelValues(outcome)
	}
	for _, what := range []string{"session", "node"} {
		m.forgotten.WithLabelValues(what)
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sandbox_hub_build_info", Help: "1, with the version of the program and of Go."}, []string{"version", "goversion"})
	info.WithLabelValues(version, goruntime.Version()).Set(1)
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sandbox_hub_" + name, Help: help}, func() float64 { return float64(value()) })
	}
	r.MustRegister(
		m.open, m.requests, m.joins, m.copied, m.bundles, m.bundleBytes, m.moves, m.forgotten, m.peers, info,
		gauge("nodes", "Nodes that are known.", func() int { return len(h.o.Store.Nodes()) }),
		gauge("nodes_online", "Nodes whose tunnel a hub holds.", func() (n int) {
			for _, node := range h.o.Store.Nodes() {
				if h.online(node) {
					n++
				}
			}
			return n
		}),
		gauge("tunnels", "Tunnels that this hub holds.", func() int { n, _, _ := h.links.count(); return n }),
		gauge("tunnel_streams", "Streams of these tunnels.", func() int { _, n, _ := h.links.count(); return n }),
		gauge("tunnel_lanes", "Connections beside the tunnels, for what is large.", func() int { _, _, n := h.links.count(); return n }),
		gauge("acp_connections", "ACP connections to the hub itself.", func() int { return h.relay.Count() }),
		gauge("sessions", "Sessions that are known.", h.o.Store.SessionCount),
		gauge("replication_lag_entries", "Events that nodes of this hub have told of and that are not copied yet.", func() int { return int(h.links.behind()) }),
		gauge("store_reachable", "1 while the store can be written to.", func() int {
			if h.o.Store.Ready() != nil {
				return 0
			}
			return 1
		}),
	)
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true})
	return m
}
