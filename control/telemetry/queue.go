package telemetry

import (
	"context"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// queue stands before and behind the SDK's queue of spans, whose bound it keeps itself: that one drops spans without a
// word when it is full. It has room for as many as OTEL_BSP_MAX_QUEUE_SIZE says; one that comes then is dropped and
// counted. It is safe for concurrent use.
type queue struct {
	sdktrace.SpanProcessor // the SDK's
	sdktrace.SpanExporter  // to the collector

	dropped func()
	bound   int64
	waiting atomic.Int64 // spans that are in the SDK's queue, or in the batch that it puts together
}

func newQueue(exporter sdktrace.SpanExporter, dropped func()) *queue {
	q := &queue{SpanExporter: exporter, dropped: dropped}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(batches{q}, func(o *sdktrace.BatchSpanProcessorOptions) { q.bound = int64(o.MaxQueueSize) })
	return q
}

// OnEnd is told of each span.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.bound {
		q.waiting.Add(-1)
		q.dropped()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// Shutdown sends what waits.
func (q *queue) Shutdown(ctx context.Context) error { return q.SpanProcessor.Shutdown(ctx) }

// batches is the exporter of the SDK's queue.
type batches struct{ *queue }

// ExportSpans sends a batch, which makes room.
func (b batches) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	b.waiting.Add(-int64(len(spans)))
	return b.SpanExporter.ExportSpans(ctx, spans)
}

// Shutdown ends the connection to the collector.
func (b batches) Shutdown(ctx context.Context) error { return b.SpanExporter.Shutdown(ctx) }
