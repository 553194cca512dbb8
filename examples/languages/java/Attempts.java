// Retries recorded by plain attributes, with the stock OpenTelemetry SDK for Java 17 or newer.
//
// With a backend on loopback (flowmark-otel serve --insecure-no-auth):
//
//     mvn -q dependency:copy-dependencies -DoutputDirectory=lib
//     export OTEL_SERVICE_NAME=crm-sync OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
//     export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
//     java -cp 'lib/*' Attempts.java
//
// Over gRPC: OTEL_EXPORTER_OTLP_PROTOCOL=grpc, and port 4317. With keys:
// OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20fmk_… (the ingest key).

import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.UUID;

public final class Attempts {
  private static final int MAX_TRIES = 3;
  private static final long DEADLINE =
      Instant.now().plus(Duration.ofMinutes(1)).toEpochMilli();

  /** A CRM that is down the first time it is asked. */
  private static final class Crm {
    private boolean asked;

    int push(List<String> customers) {
      if (!asked) {
        asked = true;
        throw new IllegalStateException("503 Service Unavailable");
      }
      return customers.size();
    }
  }

  /** One try: a span that says which try of what it is. */
  private static int attempt(
      Tracer tracer, Attributes identity, int number, Crm crm, List<String> customers) {
    Span span =
        tracer
            .spanBuilder("push-to-crm")
            .setAllAttributes(identity)
            .setAttribute("flowmark.attempt.group_id", "customer-batch-42")
            .setAttribute("flowmark.attempt.number", number)
            .setAttribute("flowmark.attempt.limit", MAX_TRIES)
            .setAttribute("flowmark.attempt.deadline_ms", DEADLINE)
            .startSpan();
    try (Scope scope = span.makeCurrent()) {
      return crm.push(customers);
    } catch (IllegalStateException failure) {
      span.setStatus(StatusCode.ERROR);
      span.setAttribute("flowmark.error.code", "CRM_UNAVAILABLE");
      span.setAttribute("flowmark.error.retryable", true);
      throw failure;
    } finally {
      span.end();
    }
  }

  /** The application's own loop. */
  private static int pushWithRetries(
      Tracer tracer, Attributes identity, Crm crm, List<String> customers) {
    for (int number = 1; ; number++) {
      try {
        return attempt(tracer, identity, number, crm, customers);
      } catch (IllegalStateException failure) {
        if (number == MAX_TRIES) {
          throw failure;
        }
      }
    }
  }

  public static void main(String[] arguments) {
    var sdk = AutoConfiguredOpenTelemetrySdk.initialize().getOpenTelemetrySdk();
    Tracer tracer = sdk.getTracer("examples.languages.java");
    String runId = UUID.randomUUID().toString();
    // On every span of the run; without them, the service and the trace stand in.
    Attributes identity =
        Attributes.builder()
            .put("flowmark.workflow.name", "crm.sync")
            .put("flowmark.run.id", runId)
            .build();

    Span run = tracer.spanBuilder("crm.sync").setAllAttributes(identity).startSpan();
    try (Scope scope = run.makeCurrent()) {
      int imported =
          pushWithRetries(tracer, identity, new Crm(), List.of("Ada", "Grace", "Edsger"));
      run.setAttribute("flowmark.run.outcome", "complete");
      run.setAttribute("flowmark.run.result.imported", imported);
    } finally {
      run.end();
    }
    // The SDK registered a shutdown hook, which sends what is still queued.
    System.out.println("handed run " + runId + " of crm.sync to the exporter");
  }
}
