package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	defaultEndpoint = "http://localhost:4318" // as the specification says
	defaultTimeout  = 10 * time.Second        // for a batch, with all tries
	firstRetry      = time.Second
	maxRetry        = 30 * time.Second
	maxAnswer       = 64 << 10 // read of a collector's answer
	maxWhy          = 500      // bytes of its reasons that are logged
)

// sender sends spans to a collector by OTLP over HTTP. It stands in for the
// client of the OpenTelemetry project, which brings gRPC with it.
type sender struct {
	log      *slog.Logger
	sent     func(spans int, err error) // told of each batch
	endpoint string
	headers  http.Header
	timeout  time.Duration
	gzip     bool
	http     *http.Client
	life     context.Context // ends with abort
	abort    context.CancelFunc
	failing  atomic.Bool // the last batch was not taken
}

var _ otlptrace.Client = (*sender)(nil)

// newSender reads the OTEL_EXPORTER_OTLP_ variables. Errors name the variable
// and never a value, which may be secret.
func newSender(log *slog.Logger, sent func(int, error)) (*sender, error) {
	s := &sender{log: log, sent: sent, timeout: defaultTimeout, headers: http.Header{}}
	if err := s.readEndpoint(); err != nil {
		return nil, err
	}
	if v := variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT is %q: it must be a number of milliseconds", v)
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	switch v := variable("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"); v {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION is %q: use gzip or none", v)
	}
	for pair := range strings.SplitSeq(variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs, separated by commas, with percent-encoded values")
		}
		s.headers.Set(name, value)
	}
	config, err := tlsConfig()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.MaxIdleConnsPerHost = config, 1
	s.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.life, s.abort = context.WithCancel(context.Background())
	return s, nil
}

func (s *sender) readEndpoint() error {
	name := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	raw, path := variable(name), ""
	if raw == "" {
		name, path = "OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces"
		if raw = variable(name); raw == "" {
			raw = defaultEndpoint
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s must be an http or https URL", name)
	}
	if path != "" {
		u.Path = strings.TrimSuffix(u.Path, "/") + path
	}
	s.endpoint = u.String()
	return nil
}

// tlsConfig reads the certificates, nil without any.
func tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := variable("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the file of OTEL_EXPORTER_OTLP_CERTIFICATE has no certificate")
		}
	}
	cert := variable("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")
	key := variable("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY")
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and its key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// shown is the endpoint without what may be secret in it, and without a scheme:
// who looks for the gateway's own address in its output must not find another.
func (s *sender) shown() string {
	u, err := url.Parse(s.endpoint)
	if err != nil {
		return ""
	}
	return u.Host + u.Path
}

// Start implements otlptrace.Client.
func (s *sender) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (s *sender) Stop(context.Context) error { return nil }

// UploadTraces implements otlptrace.Client. What no collector takes of a batch is
// lost, counted and, for the first of a row, logged.
func (s *sender) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// The same bytes as those of an ExportTraceServiceRequest.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	var answer []byte
	if err == nil {
		answer, err = s.upload(ctx, body)
	}
	n := 0
	for _, r := range spans {
		for _, sc := range r.ScopeSpans {
			n += len(sc.Spans)
		}
	}
	if refused, why := refusedOf(answer); refused > 0 && err == nil {
		refused := int(min(refused, int64(n)))
		s.sent(n-refused, nil)
		n, err = refused, fmt.Errorf("the collector refused %d of %d spans: %q", refused, n, why)
	}
	s.sent(n, err)
	switch was := s.failing.Swap(err != nil); {
	case err != nil && !was:
		s.log.Warn("cannot send traces", "collector", s.shown(), "err", err)
	case err == nil && was:
		s.log.Info("traces are sent again", "collector", s.shown())
	}
	return nil // it was reported; the SDK would print it
}

// upload tries until the collector has answered for good, or time is over.
func (s *sender) upload(ctx context.Context, body []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if s.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(body)
		if err = errors.Join(err, z.Close()); err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
		body = b.Bytes()
	}
	for pause := firstRetry; ; pause = min(2*pause, maxRetry) {
		answer, after, err := s.post(ctx, body)
		if err == nil || after < 0 {
			return answer, err
		}
		wait := time.NewTimer(max(pause, after))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, err
		}
	}
}

// post tries once, and returns what the collector says of what it took. After an error that may pass it says when to try again at the
// earliest, after another a negative time.
func (s *sender) post(ctx context.Context, body []byte) (answer []byte, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, -1, errors.New("the endpoint is no URL")
	}
	for name, values := range s.headers {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "sandbox-agent")
	if s.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the URL may hold a secret
		}
		return nil, 0, err
	}
	defer resp.Body.Close()
	answer, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // all of it, so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			after = time.Duration(seconds) * time.Second
		}
		return nil, after, fmt.Errorf("the collector answered %s", resp.Status)
	}
	if resp.StatusCode/100 != 2 {
		return nil, -1, fmt.Errorf("the collector answered %s", resp.Status)
	}
	return answer, 0, nil
}

// refusedOf reads an ExportTraceServiceResponse: how many spans of a batch the collector did not take, and why. The
// generated type would bring gRPC. What is no such message refuses nothing.
func refusedOf(answer []byte) (spans int64, why string) {
	partial, ok := fieldOf(answer, 1, protowire.BytesType)
	if !ok {
		return 0, ""
	}
	b, _ := protowire.ConsumeBytes(partial)
	if number, ok := fieldOf(b, 1, protowire.VarintType); ok {
		n, _ := protowire.ConsumeVarint(number)
		spans = int64(n)
	}
	if text, ok := fieldOf(b, 2, protowire.BytesType); ok {
		why, _ = protowire.ConsumeString(text)
	}
	return spans, why[:min(len(why), maxWhy)]
}

// fieldOf returns the value of a message's field, and what is behind it; false when the message does not have it, or is none.
func fieldOf(message []byte, field protowire.Number, kind protowire.Type) ([]byte, bool) {
	for len(message) > 0 {
		number, is, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, is, message); n < 0 {
			return nil, false
		}
		if number == field && is == kind {
			return message, true
		}
		message = message[n:]
	}
	return nil, false
}
