// What a web page does with the stock OpenTelemetry SDK and plain attributes: nothing of ours is in it.
import { SpanStatusCode } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, WebTracerProvider } from "@opentelemetry/sdk-trace-web";

// Records two attempts and the run that they recovered; resolves to how each export ended.
globalThis.checkout = async ({ url, headers, workflow, run, timeout }) => {
  const ended = [];
  const exporter = new OTLPTraceExporter({ url, headers, timeoutMillis: timeout });
  const provider = new WebTracerProvider({
    resource: resourceFromAttributes({ "service.name": "shop-web" }),
    spanProcessors: [
      new BatchSpanProcessor({
        export: (spans, done) =>
          exporter.export(spans, (result) => {
            ended.push(result.code === 0 ? "" : String(result.error));
            done(result);
          }),
        forceFlush: () => exporter.forceFlush(),
        shutdown: () => exporter.shutdown(),
      }),
    ],
  });
  const tracer = provider.getTracer("shop");
  const identity = { "flowmark.workflow.name": workflow, "flowmark.run.id": run };
  for (const number of [1, 2]) {
    const attempt = { "flowmark.attempt.group_id": "cart-7", "flowmark.attempt.number": number };
    const span = tracer.startSpan("pay", { attributes: { ...identity, ...attempt } });
    if (number === 1) {
      span.setAttribute("flowmark.error.code", "DECLINED");
      span.setStatus({ code: SpanStatusCode.ERROR });
    }
    span.end();
  }
  const recovered = {
    "flowmark.retry_of.workflow.name": workflow,
    "flowmark.retry_of.run.id": `${run}-before`,
    "flowmark.run.outcome": "complete",
    "flowmark.run.result.paid": 1,
  };
  tracer.startSpan("checkout", { attributes: { ...identity, ...recovered } }).end();
  await provider.shutdown().catch(() => {}); // it rejects where an export failed
  return ended;
};
