"""The configuration file of the collector, in the grammar of the OpenTelemetry Collector.

``loading.load`` makes a plan of a file: ``document`` reads YAML, ``environment`` expands it,
``sections`` judges each section by the models of ``options`` and ``service``, and ``graph``,
``flow`` and ``sharing`` judge what lies between sections.
"""
