"""Generated from ``proto/flowmark/v1`` by ``make proto``: never edited by hand."""
