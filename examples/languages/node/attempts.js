// Retries recorded by plain attributes, with the stock OpenTelemetry SDK for Node 18.19 or newer.
//
// With a backend on loopback (flowmark-otel serve --insecure-no-auth):
//
//     npm ci
//     export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
//     node attempts.js
//
// The protocol can be http/json too, or grpc with port 4317. With keys:
// OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20fmk_… (the ingest key).

import { randomUUID } from "node:crypto";
import { SpanStatusCode } from "@opentelemetry/api";
import { OTLPTraceExporter as GrpcExporter } from "@opentelemetry/exporter-trace-otlp-grpc";
import { OTLPTraceExporter as JsonExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { OTLPTraceExporter as ProtobufExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const MAX_TRIES = 3;
const DEADLINE = Date.now() + 60_000;
const EXPORTERS = {
  grpc: GrpcExporter,
  "http/json": JsonExporter,
  "http/protobuf": ProtobufExporter,
};

// A CRM that is down the first time it is asked.
class Crm {
  #asked = false;

  async push(customers) {
    if (!this.#asked) {
      this.#asked = true;
      throw new Error("503 Service Unavailable");
    }
    return customers.length;
  }
}

// One try: a span that says which try of what it is.
async function attempt(tracer, identity, number, crm, customers) {
  const attributes = {
    ...identity,
    "flowmark.attempt.group_id": "customer-batch-42",
    "flowmark.attempt.number": number,
    "flowmark.attempt.limit": MAX_TRIES,
    "flowmark.attempt.deadline_ms": DEADLINE,
  };
  return tracer.startActiveSpan("push-to-crm", { attributes }, async (span) => {
    try {
      return await crm.push(customers);
    } catch (error) {
      span.setStatus({ code: SpanStatusCode.ERROR });
      span.setAttribute("flowmark.error.code", "CRM_UNAVAILABLE");
      span.setAttribute("flowmark.error.retryable", true);
      throw error;
    } finally {
      span.end();
    }
  });
}

// The application's own loop.
async function pushWithRetries(tracer, identity, crm, customers) {
  for (let number = 1; ; number++) {
    try {
      return await attempt(tracer, identity, number, crm, customers);
    } catch (error) {
      if (number === MAX_TRIES) throw error;
    }
  }
}

const Exporter = EXPORTERS[process.env.OTEL_EXPORTER_OTLP_PROTOCOL ?? "http/protobuf"];
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ "service.name": "crm-sync" }),
  spanProcessors: [new BatchSpanProcessor(new Exporter())],
});
provider.register();
const tracer = provider.getTracer("examples.languages.node");

// On every span of the run; without them, the service and the trace stand in.
const identity = { "flowmark.workflow.name": "crm.sync", "flowmark.run.id": randomUUID() };
await tracer.startActiveSpan("crm.sync", { attributes: identity }, async (run) => {
  const imported = await pushWithRetries(tracer, identity, new Crm(), ["Ada", "Grace", "Edsger"]);
  run.setAttribute("flowmark.run.outcome", "complete");
  run.setAttribute("flowmark.run.result.imported", imported);
  run.end();
});
await provider.shutdown();
console.log(`handed run ${identity["flowmark.run.id"]} of crm.sync to the exporter`);
