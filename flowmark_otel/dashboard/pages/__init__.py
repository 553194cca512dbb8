"""Pages: each one typed context, made from views, and one template that only writes it down."""
