// Retries recorded by plain attributes, with the stock OpenTelemetry SDK for Go.
//
// With a backend on loopback (flowmark-otel serve --insecure-no-auth):
//
//	export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
//	go run .
//
// Over gRPC: OTEL_EXPORTER_OTLP_PROTOCOL=grpc, and port 4317. With keys:
// OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20fmk_… (the ingest key).
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const maxTries = 3

var (
	deadline       = time.Now().Add(time.Minute).UnixMilli()
	errUnavailable = errors.New("503 Service Unavailable")
)

// crm is down the first time it is asked.
type crm struct{ asked bool }

func (c *crm) push(_ context.Context, customers []string) (int, error) {
	if !c.asked {
		c.asked = true
		return 0, errUnavailable
	}
	return len(customers), nil
}

// syncing is one run: its tracer, and what every span of it carries.
type syncing struct {
	tracer   trace.Tracer
	identity []attribute.KeyValue
	crm      crm
}

// attempt is one try: a span that says which try of what it is.
func (s *syncing) attempt(ctx context.Context, number int, customers []string) (int, error) {
	ctx, span := s.tracer.Start(ctx, "push-to-crm",
		trace.WithAttributes(s.identity...),
		trace.WithAttributes(
			attribute.String("flowmark.attempt.group_id", "customer-batch-42"),
			attribute.Int("flowmark.attempt.number", number),
			attribute.Int("flowmark.attempt.limit", maxTries),
			attribute.Int64("flowmark.attempt.deadline_ms", deadline),
		))
	defer span.End()
	imported, err := s.crm.push(ctx, customers)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(
			attribute.String("flowmark.error.code", "CRM_UNAVAILABLE"),
			attribute.Bool("flowmark.error.retryable", true),
		)
	}
	return imported, err
}

// pushWithRetries is the application's own loop.
func (s *syncing) pushWithRetries(ctx context.Context, customers []string) (int, error) {
	for number := 1; ; number++ {
		imported, err := s.attempt(ctx, number, customers)
		if err == nil || number == maxTries {
			return imported, err
		}
	}
}

// run is the span that carries how the whole ended.
func (s *syncing) run(ctx context.Context) error {
	ctx, span := s.tracer.Start(ctx, "crm.sync", trace.WithAttributes(s.identity...))
	defer span.End()
	imported, err := s.pushWithRetries(ctx, []string{"Ada", "Grace", "Edsger"})
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		return err
	}
	span.SetAttributes(
		attribute.String("flowmark.run.outcome", "complete"),
		attribute.Int("flowmark.run.result.imported", imported),
	)
	return nil
}

func newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc" {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

func main() {
	ctx := context.Background()
	exporter, err := newExporter(ctx)
	if err != nil {
		log.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "crm-sync"))),
	)
	runID := uuid.NewString()
	syncing := syncing{
		tracer: provider.Tracer("examples.languages.go"),
		// On every span of the run; without them, the service and the trace stand in.
		identity: []attribute.KeyValue{
			attribute.String("flowmark.workflow.name", "crm.sync"),
			attribute.String("flowmark.run.id", runID),
		},
	}
	failed := syncing.run(ctx)
	if err := provider.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	if failed != nil {
		log.Fatal(failed)
	}
	fmt.Printf("handed run %s of crm.sync to the exporter\n", runID)
}
