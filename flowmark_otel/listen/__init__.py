"""OTLP in, over HTTP and gRPC: transport only; what a body means is judged behind ``protocol``."""
