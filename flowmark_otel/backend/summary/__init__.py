"""What is derived of runs, kept beside the evidence and made again from it at any time.

``writing`` folds stale runs and keeps filters, full text and sums; ``rollups`` and ``search`` read
them; ``worker`` does the first while a backend serves.
"""
