"""Every way Python runs: what is guaranteed where, each row of docs/processes.md (A26, E1)."""
